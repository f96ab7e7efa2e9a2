package shell_test

import (
	"bytes"
	"strings"
	"testing"

	"nexus.internal/child/tool/shell"
)

func TestCleanTerminalOutput(t *testing.T) {
	for _, tt := range []struct{ name, shown, want string }{
		{"lines", "one\r\ntwo\r\n", "one\ntwo\n"},
		{"colours", "\x1b[1;32mok\x1b[0m \x1b[38;5;9mbad\x1b[m", "ok bad"},
		{"a title", "\x1b]0;a title\aprompt$ \x1b]8;;http://x\x1b\\link", "prompt$ link"},
		{"progress", "10%\r20%\r\x1b[K100%\r\n", "10%\n20%\n100%\n"},
		{"a line of its own", "\r\x1b[2Ktext\r\r\n", "text\n"},
		{"a screen", "\x1b[2J\x1b[1;1Htop\x1b[5;1Hlow", "top\nlow"},
		{"bells and back", "a\ab\bc\x00\x7f\x0ed", "abcd"},
		{"character sets", "\x1b(Bx\x1b=y\x1b>\x1b7z", "xyz"},
		{"other letters", "\u00e9\u4e16\U0001f600", "\u00e9\u4e16\U0001f600"},
		{"cancelled", "\x1b[12\x18text", "text"},
		{"a string without end", "\x1b]0;" + strings.Repeat("x", 5000), strings.Repeat("x", 5000+3-4096)},
		{"an end within", "text\x1b[3", "text"},
	} {
		if got := shell.Clean([]byte(tt.shown)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// FuzzClean checks that no control character is left but tabs and newlines, that plain text is
// as it was, and that pieces give what the whole gives.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"\x1b[1mx\r\n", "\x1b]0;t\ax", "\x1b(Ba\rb", "plain\ttext\n"} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, shown []byte, cut int) {
		got := shell.Clean(shown)
		if i := strings.IndexFunc(got, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }); i >= 0 {
			t.Errorf("%q has %q", got, got[i])
		}
		if len(got) > len(shown) {
			t.Errorf("%q is longer than %q", got, shown)
		}
		if !bytes.ContainsFunc(shown, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) && got != string(shown) {
			t.Errorf("%q of plain %q", got, shown)
		}
		if cut >= 0 && cut <= len(shown) {
			if pieces := shell.Clean(shown[:cut], shown[cut:]); pieces != got {
				t.Errorf("%q in pieces, %q as a whole", pieces, got)
			}
		}
	})
}
