// Package shellword writes and reads words of a command line.
package shellword

import (
	"errors"
	"strings"
	"unicode"
)

// Quote writes a word so that a POSIX shell reads it as it is: in single quotes, unless it has
// only letters, digits and -_./:=@,+%.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,+%", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return Always(word)
}

// Join writes a program and its arguments as a command line. A program with a "=" in its name is quoted: a shell
// would take it for a variable, and the next word for the program.
func Join(words ...string) string {
	var line strings.Builder
	for i, word := range words {
		switch {
		case i > 0:
			line.WriteString(" " + Quote(word))
		case strings.Contains(word, "="):
			line.WriteString(Always(word))
		default:
			line.WriteString(Quote(word))
		}
	}
	return line.String()
}

// Always writes a word in single quotes.
func Always(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// ErrOpen says that a quote, or a backslash, has nothing behind it that ends it.
var ErrOpen = errors.New("a quote is not closed, or nothing stands behind the last backslash")

// Word is a word as it was read.
type Word struct {
	Text  string // without its quotes
	Start int    // where it begins in the line, in bytes
}

// Read reads a line as a POSIX shell would: words with white space between them, '…', "…" and backslashes. Nothing else means
// anything: $, *, ~, # and ; are characters. With ErrOpen the last word is what there is of it.
func Read(line string) (words []Word, err error) {
	var word *Word
	var quote rune // the open one; 0 for none
	escaped := false
	for at, r := range line {
		if word == nil {
			if unicode.IsSpace(r) {
				continue
			}
			words = append(words, Word{Start: at})
			word = &words[len(words)-1]
		}
		switch {
		case escaped:
			if escaped = false; quote == '"' && !strings.ContainsRune("\"\\$`\n", r) {
				word.Text += `\`
			}
			if r != '\n' { // else the line goes on
				word.Text += string(r)
			}
		case r == '\\' && quote != '\'':
			escaped = true
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case r == quote:
			quote = 0
		case quote == 0 && unicode.IsSpace(r):
			word = nil
		default:
			word.Text += string(r)
		}
	}
	if quote != 0 || escaped {
		err = ErrOpen
	}
	return words, err
}

// Escape writes a word, or the begin of one, so that Read and a POSIX shell read it as it is, by backslashes: what is typed behind it
// belongs to it.
func Escape(word string) string {
	var b strings.Builder
	for _, r := range word {
		switch {
		case r == '\n':
			b.WriteString("'\n'")
			continue
		case r < 0x80 && Quote(string(r)) != string(r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
