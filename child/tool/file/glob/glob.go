// Package glob matches paths against patterns: those that a model writes, and
// those of .gitignore files.
//
//	p, err := glob.Compile("src/**/*.{ts,tsx}")
//	p.Match("src/a/b.ts") // true
//
// Paths are relative and have slashes. In a pattern "*" and "?" stand for what
// is within one name, "[a-z]" and "[!a-z]" for one character, "**" as a whole
// name for any number of directories, and "{a,b}" for either. A backslash takes
// the meaning from the character after it. A name that begins with a dot is
// nothing special.
//
// No pattern costs more than the product of its length and the path's, so none
// can wedge a search. Nothing here reads a file. Patterns and rules are
// immutable, so they are safe for concurrent use. The contract is SPEC.md §4.4.
package glob

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	maxPattern      = 1 << 10 // bytes of a pattern
	maxAlternatives = 256     // that its braces may stand for
)

// Pattern is a compiled pattern. The zero value matches nothing.
type Pattern struct {
	alternatives [][]string // each the names of a pattern without braces
}

// Compile reads a pattern of at most 1 KiB, whose braces stand for at most 256
// alternatives.
func Compile(pattern string) (Pattern, error) {
	if len(pattern) > maxPattern {
		return Pattern{}, fmt.Errorf("it has more than %d bytes", maxPattern)
	}
	expanded, err := expand(pattern)
	if err != nil {
		return Pattern{}, err
	}
	var p Pattern
	for _, alternative := range expanded {
		names, err := split(alternative)
		if err != nil {
			return Pattern{}, err
		}
		p.alternatives = append(p.alternatives, names)
	}
	return p, nil
}

// Match reports whether the whole of a path is as the pattern says.
func (p Pattern) Match(path string) bool {
	names := strings.Split(path, "/")
	for _, pattern := range p.alternatives {
		if match(pattern, names) {
			return true
		}
	}
	return false
}

// Below reports whether there can be a match in the directory or further down.
func (p Pattern) Below(dir string) bool {
	names := strings.Split(dir, "/")
	for _, pattern := range p.alternatives {
		if leads(pattern, names) {
			return true
		}
	}
	return false
}

// match matches names with those of a pattern. It goes back only to the last
// "**" so that the time is bounded by the product of both lengths.
func match(pattern, names []string) bool {
	p, n := 0, 0
	again, from := -1, 0 // the "**" to go back to, and where to go on
	for n < len(names) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			again, from = p, n
			p++
		case p < len(pattern) && matchName(pattern[p], names[n]):
			p++
			n++
		case again >= 0:
			from++
			p, n = again+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

// leads reports whether the names are a beginning of what a pattern matches.
func leads(pattern, names []string) bool {
	for i, name := range names {
		switch {
		case i >= len(pattern)-1 && (i >= len(pattern) || pattern[i] != "**"):
			return false
		case pattern[i] == "**":
			return true
		case !matchName(pattern[i], name):
			return false
		}
	}
	return true
}

// matchName matches one name. split has seen to it that the pattern is valid.
func matchName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// split divides a pattern without braces into names that path.Match can take.
func split(pattern string) ([]string, error) {
	names := strings.Split(pattern, "/")
	for i, name := range names {
		if name == "**" {
			continue
		}
		translated := translate(name)
		if _, err := path.Match(translated, ""); err != nil {
			return nil, fmt.Errorf("%q is not a valid pattern", name)
		}
		names[i] = translated
	}
	if names[len(names)-1] == "**" {
		names = append(names, "*") // "a/**" is what is in a, and not a itself
	}
	return names, nil
}

// translate writes the pattern of a name as path.Match wants it, where shells
// and git differ from that: "[!a]", "[]a]", "[a-]" and "[[:digit:]]".
func translate(name string) string {
	if !strings.Contains(name, "[") {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		switch name[i] {
		case '\\':
			b.WriteByte('\\')
			if i++; i < len(name) {
				b.WriteByte(name[i])
			}
		case '[':
			end := class(&b, name[i:])
			if end < 0 { // it does not end: path.Match will refuse it
				b.WriteString(name[i:])
				return b.String()
			}
			i += end
		default:
			b.WriteByte(name[i])
		}
	}
	return b.String()
}

// named are the character classes that have names.
var named = []struct{ name, members string }{
	{"[:alnum:]", "0-9A-Za-z"},
	{"[:alpha:]", "A-Za-z"},
	{"[:digit:]", "0-9"},
	{"[:lower:]", "a-z"},
	{"[:upper:]", "A-Z"},
	{"[:xdigit:]", "0-9A-Fa-f"},
	{"[:space:]", " \t-\r"},
	{"[:blank:]", " \t"},
	{"[:punct:]", "!-/:-@\\[-`{-~"},
}

// class translates the class that text begins with, and returns where its "]"
// is; -1 if there is none.
func class(b *strings.Builder, text string) int {
	b.WriteByte('[')
	i := 1
	if i < len(text) && (text[i] == '!' || text[i] == '^') {
		b.WriteByte('^')
		i++
	}
next:
	for first := i; i < len(text); {
		for _, c := range named {
			if strings.HasPrefix(text[i:], c.name) {
				b.WriteString(c.members)
				i += len(c.name)
				continue next
			}
		}
		if text[i] == ']' && i > first {
			b.WriteByte(']')
			return i
		}
		i += member(b, text[i:])
		if rest := text[i:]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			b.WriteByte('-')
			i += 1 + member(b, rest[1:])
		}
	}
	return -1
}

// member writes the character that text begins with as one that means itself,
// and returns its length.
func member(b *strings.Builder, text string) int {
	escape := 0
	if len(text) > 1 && text[0] == '\\' {
		escape = 1
	}
	_, size := utf8.DecodeRuneInString(text[escape:])
	b.WriteByte('\\')
	b.WriteString(text[escape : escape+size])
	return escape + size
}

// expand writes out the braces of a pattern, the innermost ones first.
func expand(pattern string) ([]string, error) {
	var cuts []int // the last "{", and the commas after it
	for i := 0; i < len(pattern); i++ {
		switch {
		case pattern[i] == '\\':
			i++
		case pattern[i] == '[':
			var unused strings.Builder
			end := class(&unused, pattern[i:])
			switch {
			case end >= 0:
				i += end
			case cuts == nil: // split will refuse it
				return []string{pattern}, nil
			default:
				return nil, errors.New(`a "[" has no "]"`)
			}
		case pattern[i] == '{':
			cuts = []int{i}
		case pattern[i] == ',' && cuts != nil:
			cuts = append(cuts, i)
		case pattern[i] == '}' && cuts != nil:
			var all []string
			for n, end := range append(cuts[1:], i) {
				some, err := expand(pattern[:cuts[0]] + pattern[cuts[n]+1:end] + pattern[i+1:])
				if err != nil {
					return nil, err
				}
				if all = append(all, some...); len(all) > maxAlternatives {
					return nil, fmt.Errorf("its braces stand for more than %d patterns", maxAlternatives)
				}
			}
			return all, nil
		}
	}
	if cuts != nil {
		return nil, errors.New(`a "{" has no "}"`)
	}
	return []string{pattern}, nil
}
