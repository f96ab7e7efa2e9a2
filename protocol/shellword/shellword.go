// Package shellword writes words for a command line.
package shellword

import "strings"

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
