package textcut_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"nexus.internal/protocol/textcut"
)

func TestCuts(t *testing.T) {
	for _, test := range []struct {
		name             string
		text             string
		limit            int
		head, tail, clip string
	}{
		{"empty", "", 0, "", "", ""},
		{"fits", "añb", 4, "añb", "añb", "añb"},
		{"letters", "abcdef", 4, "abcd", "cdef", "a…"},
		{"within two bytes", "abñcd", 3, "ab", "cd", "…"},
		{"after two bytes", "abñcd", 4, "abñ", "ñcd", "a…"},
		{"within three bytes", "a€b", 2, "a", "b", ""},
		{"within four bytes", "😀😀", 7, "😀", "😀", "😀…"},
		{"nothing fits", "😀😀", 3, "", "", "…"},
		{"no room", "abc", 0, "", "", ""},
		{"nothing below zero", "", -5, "", "", ""},
		{"below zero", "abc", -5, "", "", ""},
		{"not UTF-8", "\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80", "\x80\x80\x80\x80\x80", "\uFFFD"},
		{"not UTF-8, fits after repair", "a\xffb", 5, "a\xffb", "a\xffb", "a\uFFFDb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := []string{
				textcut.Head(test.text, test.limit), textcut.Tail(test.text, test.limit), textcut.Clip(test.text, test.limit),
				string(textcut.Head([]byte(test.text), test.limit)), string(textcut.Tail([]byte(test.text), test.limit)),
			}
			want := []string{test.head, test.tail, test.clip, test.head, test.tail}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("head, tail, clip and those of bytes are %q, want %q", got, want)
			}
		})
	}
}

func TestLine(t *testing.T) {
	long := "\n a\t" + strings.Repeat(" ", 1000) + "b\r\n" + strings.Repeat("é", 1000)
	if got, want := textcut.Line(long, 12), "a b éé…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := textcut.Line(" to\n be ", 5), "to be"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPieces(t *testing.T) {
	for _, test := range []struct {
		name, text, whole string
		partial           int
	}{
		{"empty", "", "", 0},
		{"complete", "añ😀", "añ😀", 0},
		{"one of two", "a\xc3", "a", 1},
		{"three of four", "a\xf0\x9f\x98", "a", 3},
		{"ends of characters", "\x98\x80a", "a", 0},
		{"both", "\xb1a\xc3", "a", 1},
		{"parts alone", "\x98\x80", "", 0},
		{"never to be complete", "a\xff", "a\xff", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := textcut.Partial(test.text); got != test.partial {
				t.Errorf("%d bytes are partial, want %d", got, test.partial)
			}
			if got := textcut.Whole(test.text); got != test.whole {
				t.Errorf("got %q, want %q", got, test.whole)
			}
		})
	}
}

// FuzzCut checks the promises of the package for any bytes: no result exceeds its
// limit, Head and Tail are parts of the text that lack less than a character, and
// UTF-8 stays UTF-8.
func FuzzCut(f *testing.F) {
	for _, text := range []string{"", "plain", "añ€😀", "\xff\x80\x80\x80\x80", "a \n b", "\xf0\x9f"} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		head, tail := textcut.Head(text, limit), textcut.Tail(text, limit)
		if !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
			t.Fatalf("head %q, tail %q", head, tail)
		}
		least := min(len(text), max(limit, 0)-utf8.UTFMax+1)
		for name, cut := range map[string]string{"head": head, "tail": tail, "clip": textcut.Clip(text, limit), "line": textcut.Line(text, limit)} {
			if len(cut) > max(limit, 0) {
				t.Errorf("the %s %q has more than %d bytes", name, cut, limit)
			}
			if shown := name == "clip" || name == "line"; (shown || utf8.ValidString(text)) && !utf8.ValidString(cut) {
				t.Errorf("the %s %q is not UTF-8", name, cut)
			} else if !shown && len(cut) < least {
				t.Errorf("the %s %q has less than %d bytes", name, cut, least)
			}
		}
		if whole := textcut.Whole(text); utf8.ValidString(text) && whole != text {
			t.Errorf("the whole of %q is %q", text, whole)
		}
		if cut := min(max(limit, 0), len(text)); utf8.ValidString(text) && !utf8.ValidString(textcut.Whole(text[cut:])+textcut.Whole(text[:cut])) {
			t.Errorf("%q is not whole", text[:cut])
		}
	})
}
