package web

import (
	"html"
	"slices"
	"strings"
)

// token is a piece of a page: a text, or the beginning or the end of an element.
type token struct {
	text      string // without entities, if name is ""
	name      string // of the element, in lower case; "" for a text
	end       bool   // the element ends
	empty     bool   // it ends where it begins, as <svg/>
	href, alt string // of a beginning
}

// lexer takes a page apart as browsers do (HTML, 13.2.5 Tokenization), as far as a text needs it:
// comments, declarations and all attributes but href and alt are passed over. It never goes
// back, so its time is proportional to the page.
type lexer struct {
	rest string
	raw  string // the element whose content is text alone, and has begun; "" for none
}

// next is the next piece; false at the end.
func (l *lexer) next() (token, bool) {
	for l.rest != "" {
		if l.raw != "" {
			if t, ok := l.content(); ok {
				return t, true
			}
			continue
		}
		at := l.markup()
		if at > 0 {
			text := l.rest[:at]
			l.rest = l.rest[at:]
			return token{text: html.UnescapeString(text)}, true
		}
		switch {
		case strings.HasPrefix(l.rest, "<!--"):
			l.comment()
		case l.rest[1] == '!' || l.rest[1] == '?' || l.rest[1] == '/' && !isLetter(l.rest[2:]):
			l.after(">")
		default:
			if t, ok := l.tag(); ok {
				return t, true
			}
		}
	}
	return token{}, false
}

// markup is where the next < stands that is no text; the length of the rest if there is none.
func (l *lexer) markup() int {
	for at := 0; ; at++ {
		i := strings.IndexByte(l.rest[at:], '<')
		if i < 0 || at+i+1 == len(l.rest) {
			return len(l.rest)
		}
		at += i
		switch next := l.rest[at+1:]; {
		case next[0] == '!', next[0] == '?', next[0] == '/' && len(next) > 1, isLetter(next):
			return at
		}
	}
}

func isLetter(text string) bool {
	return text != "" && ('a' <= text[0]|0x20 && text[0]|0x20 <= 'z')
}

// after goes on behind the first mark.
func (l *lexer) after(mark string) {
	if _, rest, ok := strings.Cut(l.rest, mark); ok {
		l.rest = rest
	} else {
		l.rest = ""
	}
}

// comment goes on behind a comment, which <!--> and <!---> are, too.
func (l *lexer) comment() {
	l.rest = l.rest[len("<!--"):]
	for _, short := range []string{">", "->"} {
		if rest, ok := strings.CutPrefix(l.rest, short); ok {
			l.rest = rest
			return
		}
	}
	end, size := strings.Index(l.rest, "-->"), len("-->")
	if i := strings.Index(l.rest[:max(end, 0)], "--!>"); i >= 0 || end < 0 {
		if i < 0 {
			i = strings.Index(l.rest, "--!>")
		}
		end, size = i, len("--!>")
	}
	if end < 0 {
		end, size = len(l.rest), 0
	}
	l.rest = l.rest[end+size:]
}

// content is what stands in an element whose content is text alone; false if that is nothing.
func (l *lexer) content() (token, bool) {
	name, end := l.raw, len(l.rest)
	l.raw = ""
	for at := 0; at < len(l.rest); {
		i := strings.Index(l.rest[at:], "</")
		if i < 0 {
			break
		}
		at += i + len("</")
		if after := l.rest[at:]; len(after) > len(name) && lower(after[:len(name)]) == name && strings.IndexByte(space+"/>", after[len(name)]) >= 0 {
			end = at - len("</")
			break
		}
	}
	text := l.rest[:end]
	l.rest = l.rest[end:]
	if text == "" || name != "title" && name != "textarea" {
		return token{}, false
	}
	return token{text: html.UnescapeString(text)}, true
}

// rawElements have content that is text alone, up to their end.
var rawElements = []string{"iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"}

const space = " \t\n\f\r"

// tag is the beginning or the end of an element; false if the page ends within.
func (l *lexer) tag() (t token, ok bool) {
	l.rest, t.end = strings.CutPrefix(l.rest[1:], "/")
	t.name = lower(l.until(space + "/>"))
	var hasHref, hasAlt bool
	for {
		l.rest = strings.TrimLeft(l.rest, space)
		switch {
		case l.rest == "":
			return t, false
		case l.rest[0] == '>', strings.HasPrefix(l.rest, "/>"):
			t.empty = l.rest[0] == '/'
			l.after(">")
			if !t.end && slices.Contains(rawElements, t.name) {
				l.raw = t.name
			}
			return t, true
		case l.rest[0] == '/':
			l.rest = l.rest[1:]
			continue
		}
		switch name, value := l.attribute(); {
		case !hasHref && lower(name) == "href": // the first of a name counts
			t.href, hasHref = value, true
		case !hasAlt && lower(name) == "alt":
			t.alt, hasAlt = value, true
		}
	}
}

// lower is a name in lower case: A to Z alone are other letters of a name.
func lower(name string) string {
	bytes := []byte(name)
	for i, b := range bytes {
		if 'A' <= b && b <= 'Z' {
			bytes[i] = b | 0x20
		}
	}
	return string(bytes)
}

// attribute is the attribute that the rest begins with.
func (l *lexer) attribute() (name, value string) {
	first := l.rest[:1] // which may be =
	l.rest = l.rest[1:]
	name = first + l.until(space+"/>=")
	l.rest = strings.TrimLeft(l.rest, space)
	after, has := strings.CutPrefix(l.rest, "=")
	if !has {
		return name, ""
	}
	l.rest = strings.TrimLeft(after, space)
	if l.rest != "" && (l.rest[0] == '"' || l.rest[0] == '\'') {
		quote := l.rest[:1]
		value, _, _ = strings.Cut(l.rest[1:], quote)
		l.rest = l.rest[1:]
		l.after(quote)
	} else {
		value = l.until(space + ">")
	}
	return name, html.UnescapeString(value)
}

// until takes what stands before the first of some bytes, or all.
func (l *lexer) until(bytes string) string {
	end := strings.IndexAny(l.rest, bytes)
	if end < 0 {
		end = len(l.rest)
	}
	text := l.rest[:end]
	l.rest = l.rest[end:]
	return text
}
