package protocol_test

import (
	"strings"
	"testing"

	"nexus.internal/protocol"
)

func TestCheckSource(t *testing.T) {
	for text, want := range map[string]string{
		"rpc": "", "agent": "", "nexus_send": "", "ein Gruß": "", strings.Repeat("x", protocol.MaxSource): "",
		"": "want 1 to 128 bytes, have 0", strings.Repeat("x", protocol.MaxSource+1): "want 1 to 128 bytes, have 129",
		"a\nb": "contains a control character", "a\u0085b": "contains a control character", "\xff": "is not UTF-8",
	} {
		got := ""
		if err := protocol.CheckSource(text); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.20q: got %q, want %q", text, got, want)
		}
	}
}

func TestIsVariableName(t *testing.T) {
	for name, want := range map[string]bool{"A": true, "_": true, "a_1": true, "Z9": true, "": false, "1a": false, "a-b": false, "a\n": false, "é": false, "a=b": false} {
		if got := protocol.IsVariableName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
