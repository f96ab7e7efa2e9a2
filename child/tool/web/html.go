package web

import (
	"context"
	"net/url"
	"strings"
	"unicode"
)

const (
	maxText    = 8 << 20 // bytes of a page's text
	tokenEvery = 1 << 10 // tokens between two looks at the context
	maxIndent  = 8       // lists within lists that are told apart
)

// toText is the text of a page with its headings, lists, links and preformatted parts marked as
// in Markdown. The time it takes is proportional to the page.
func toText(ctx context.Context, page string, base *url.URL) (string, error) {
	w, l := &writer{base: base}, &lexer{rest: page}
	for n := 0; ; n++ {
		if n%tokenEvery == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		t, ok := l.next()
		switch {
		case !ok:
			return w.end(), nil
		case w.out.Len() > maxText:
			return w.end() + "[the rest of the page is left out]\n", nil
		}
		w.token(t)
	}
}

// writer puts a page's text together.
type writer struct {
	base    *url.URL
	out     strings.Builder
	title   strings.Builder
	breaks  int    // lines to end before the next text: 1, or 2 for an empty line between
	space   bool   // there is one before the next text
	pre     int    // preformatted elements that are open
	lists   int    // lists that are open
	mark    string // what the next text begins with, as "- "
	link    string // where the link that is open leads; "" if none is
	opening bool   // nothing of that link was written
	skip    string // the element that is left out; "" if none is
	skipped int    // elements of that name that are open
	inTitle bool
}

func (w *writer) token(t token) {
	switch {
	case w.skip != "":
		if t.name != w.skip {
			return
		}
		if t.end {
			w.skipped--
		} else if !t.empty {
			w.skipped++
		}
		if w.skipped == 0 {
			w.skip = ""
		}
	case t.name == "" && w.inTitle:
		w.title.WriteString(t.text)
	case t.name == "":
		w.text(t.text)
	case t.end:
		w.close(t.name)
	default:
		w.start(t)
	}
}

// start begins an element.
func (w *writer) start(t token) {
	switch t.name {
	case "script", "style", "template", "noscript", "svg", "iframe", "object":
		if !t.empty {
			w.skip, w.skipped = t.name, 1
		}
	case "title":
		w.inTitle = true
	case "br":
		w.breakLine(1)
	case "hr":
		w.breakLine(2)
	case "h1", "h2", "h3", "h4", "h5", "h6":
		w.breakLine(2)
		w.mark = strings.Repeat("#", int(t.name[1]-'0')) + " "
	case "ul", "ol":
		w.lists++
		w.breakLine(1)
	case "li":
		w.breakLine(1)
		w.mark = strings.Repeat("  ", max(0, min(w.lists, maxIndent)-1)) + "- "
	case "td", "th":
		if w.breaks == 0 && w.out.Len() > 0 {
			w.space = true
			w.write("|")
			w.space = true
		}
	case "pre":
		w.breakLine(2)
		w.write("```")
		w.breakLine(1)
		w.pre++
	case "a":
		w.openLink(t.href)
	case "img":
		if alt := strings.TrimSpace(t.alt); alt != "" {
			w.text("[image: " + alt + "]")
		}
	default:
		w.breakLine(blockBreaks(t.name))
	}
}

// close ends an element.
func (w *writer) close(name string) {
	switch name {
	case "title":
		w.inTitle = false
	case "a":
		w.closeLink()
	case "pre":
		if w.pre > 0 {
			w.pre--
			w.breakLine(1)
			w.write("```")
			w.breakLine(2)
		}
	case "ul", "ol":
		w.lists = max(0, w.lists-1)
		w.breakLine(1)
	case "h1", "h2", "h3", "h4", "h5", "h6":
		w.mark = ""
		w.breakLine(2)
	default:
		w.breakLine(blockBreaks(name))
	}
}

// blockBreaks is how many lines end where an element begins or ends; 0 within a line.
func blockBreaks(name string) int {
	switch name {
	case "p", "blockquote", "table", "article", "section", "main", "header", "footer", "nav", "aside", "dl",
		"figure", "form", "fieldset", "details":
		return 2
	case "div", "tr", "li", "dt", "dd", "address", "caption", "figcaption", "summary", "option", "body":
		return 1
	default:
		return 0
	}
}

// openLink begins a link, if it leads to another page.
func (w *writer) openLink(to string) {
	w.closeLink()
	at, err := w.base.Parse(strings.TrimSpace(to))
	if to == "" || strings.HasPrefix(to, "#") || err != nil || at.Scheme != "http" && at.Scheme != "https" {
		return
	}
	w.link, w.opening = at.String(), true
}

func (w *writer) closeLink() {
	if w.link != "" && !w.opening {
		breaks, space := w.breaks, w.space
		w.breaks, w.space = 0, false
		w.write("](" + w.link + ")")
		w.breaks, w.space = breaks, space
	}
	w.link, w.opening = "", false
}

// text writes what an element says.
func (w *writer) text(text string) {
	if w.pre > 0 {
		w.write(text)
		return
	}
	for len(text) > 0 {
		end := strings.IndexFunc(text, unicode.IsSpace)
		if end < 0 {
			end = len(text)
		}
		if end > 0 {
			w.write(text[:end])
		}
		rest := strings.TrimLeftFunc(text[end:], unicode.IsSpace)
		w.space = w.space || len(rest) < len(text)-end
		text = rest
	}
}

// breakLine ends so many lines before the next text.
func (w *writer) breakLine(n int) { w.breaks = max(w.breaks, n) }

// write puts a text out, after the ends of lines, the mark or the space that are due.
func (w *writer) write(text string) {
	switch {
	case w.out.Len() == 0:
	case w.breaks > 0:
		w.out.WriteString("\n\n"[:w.breaks])
	case w.space && w.pre == 0:
		w.out.WriteByte(' ')
	}
	w.out.WriteString(w.mark)
	if w.opening {
		w.out.WriteByte('[')
	}
	w.out.WriteString(text)
	w.breaks, w.space, w.mark, w.opening = 0, false, "", false
}

// end is the whole text.
func (w *writer) end() string {
	w.closeLink()
	text := w.out.String()
	if title := strings.Join(strings.Fields(w.title.String()), " "); title != "" && !strings.HasPrefix(text, "# "+title) {
		text = "Title: " + title + "\n\n" + text
	}
	if text == "" {
		return "[the page has no text]\n"
	}
	return strings.TrimRight(text, "\n") + "\n"
}
