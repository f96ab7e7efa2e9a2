package protocol_test

import (
	"strings"
	"testing"

	"nexus.internal/protocol"
)

func TestModelName(t *testing.T) {
	long := strings.Repeat("m", protocol.MaxModelName)
	for _, tt := range []struct {
		name, model string
		err         string // "" for none
		cut         string
	}{
		{"plain", "maker/big:free", "", "maker/big:free"},
		{"the longest", long, "", long},
		{"one too long", long + "m", "the name is 257 bytes long, at most 256 are allowed", long},
		{"cut within a character", long[1:] + "ü", "the name is 257 bytes long, at most 256 are allowed", long[1:]},
		{"empty", "", "the name is empty", ""},
		{"a control character", "a\nb\u0085c", "the name has a control character", "abc"},
		{"not UTF-8", "a\xffb", "the name is not UTF-8", "ab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := protocol.CheckModelName(tt.model); err != nil {
				got = err.Error()
			}
			if got != tt.err {
				t.Errorf("got %q, want %q", got, tt.err)
			}
			if cut := protocol.CutModelName(tt.model); cut != tt.cut {
				t.Errorf("cut to %q, want %q", cut, tt.cut)
			}
		})
	}
}
