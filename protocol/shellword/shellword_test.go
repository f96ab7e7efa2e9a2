package shellword_test

import (
	"os/exec"
	"testing"

	"nexus.internal/protocol/shellword"
)

// TestQuote has a shell read the words.
func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"a": "a", "--home=/tmp/a_b": "--home=/tmp/a_b", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "ü": "'ü'", "~": "'~'", "a\nb": "'a\nb'",
	} {
		got := shellword.Quote(word)
		if got != want {
			t.Errorf("%q is written %s, want %s", word, got, want)
		}
		read, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf %s "+got).Output()
		if err != nil || string(read) != word {
			t.Errorf("a shell reads %s as %q, %v", got, read, err)
		}
	}
	if got := shellword.Always("a"); got != "'a'" {
		t.Errorf("got %s", got)
	}
}

func TestJoin(t *testing.T) {
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"./a b", "-c", "ls; id", "A=b"}, `'./a b' -c 'ls; id' A=b`},
		{[]string{"A=b", "ls"}, `'A=b' ls`}, // it is no variable
		{nil, ""},
	} {
		if got := shellword.Join(tt.words...); got != tt.want {
			t.Errorf("%q is written %s, want %s", tt.words, got, tt.want)
		}
	}
}
