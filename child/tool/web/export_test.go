package web

import "fmt"

// ToText is toText.
var ToText = toText

// Tokens takes a page apart: the texts between elements, each as one, and <NAME> or </NAME> with
// href and alt.
func Tokens(page string) (all []string) {
	text := ""
	l := &lexer{rest: page}
	for t, ok := l.next(); ok; t, ok = l.next() {
		switch {
		case t.name == "":
			text += t.text
			continue
		case text != "":
			all, text = append(all, text), ""
		}
		if t.end {
			all = append(all, "</"+t.name+">")
		} else {
			all = append(all, fmt.Sprintf("<%s %q %q %t>", t.name, t.href, t.alt, t.empty))
		}
	}
	if text != "" {
		all = append(all, text)
	}
	return all
}
