package shellword_test

import (
	"errors"
	"os/exec"
	"strings"
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

// TestRead compares with what a shell reads.
func TestRead(t *testing.T) {
	for _, line := range []string{
		"", "  ", "a b", " a\tb\nc ", `--reason "a b"`, `'sp ace'`, `sp\ ace`, `a"b c"d'e f'g`, `""`, `'' a`, `"a \"b\" \\ \a"`, `'a\'`, `it\'s`, `ü\ ü "漢 字"`, "a\\\nb", "\"a\\\nb\"",
		`"a'b" 'c"d'`, `\\`, shellword.Escape("a b'c\"d\\e$f*g;ü\nh~#i"), shellword.Quote("a 'b'"),
	} {
		words, err := shellword.Read(line)
		got := ""
		for _, w := range words {
			got += w.Text + "\x1f"
		}
		want, failed := exec.CommandContext(t.Context(), "/bin/sh", "-c", `[ $# = 0 ] || printf '%s\037' "$@"`, "sh").Output()
		if line != "" {
			want, failed = exec.CommandContext(t.Context(), "/bin/sh", "-c", "set -- "+strings.ReplaceAll(strings.ReplaceAll(line, "\nc", " c"), "\t", " ")+"\n"+`[ $# = 0 ] || printf '%s\037' "$@"`).Output()
		}
		if err != nil || failed != nil || got != string(want) {
			t.Errorf("%q is read as %q, %v; a shell reads %q, %v", line, got, err, want, failed)
		}
	}
	for line, last := range map[string]string{`"`: "", `a "b c`: "b c", `it's`: "its", `a b\`: "b", `"a\`: "a"} {
		words, err := shellword.Read(line)
		if !errors.Is(err, shellword.ErrOpen) || len(words) == 0 || words[len(words)-1].Text != last {
			t.Errorf("%q is read as %+v, %v", line, words, err)
		}
	}
	if words, err := shellword.Read("$x *  ~/a # ;b"); err != nil || len(words) != 5 || words[0].Text != "$x" || words[2] != (shellword.Word{Text: "~/a", Start: 6}) {
		t.Errorf("got %+v, %v", words, err)
	}
	if got := shellword.Escape("a b/"); got != `a\ b/` {
		t.Errorf("got %s", got)
	}
}
