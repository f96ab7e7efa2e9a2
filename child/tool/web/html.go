package web

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

const (
	maxText    = 8 << 20 // bytes of a page's text
	tokenEvery = 1 << 10 // tokens between two looks at the context
	maxIndent  = 8       // lists within lists that are told apart
)

// toText is the text of a page with its headings, lists, links and preformatted parts marked as
// in Markdown. The time it takes is proportional to the page.
func toText(ctx context.Context, page io.Reader, base *url.URL) (string, error) {
	w := &writer{base: base}
	z := html.NewTokenizer(page)
	for n := 0; ; n++ {
		if n%tokenEvery == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		switch kind := z.Next(); {
		case kind == html.ErrorToken && errors.Is(z.Err(), io.EOF):
			return w.end(), nil
		case kind == html.ErrorToken:
			return "", z.Err()
		case w.out.Len() > maxText:
			return w.end() + "[the rest of the page is left out]\n", nil
		default:
			w.token(z.Token())
		}
	}
}

// writer puts a page's text together.
type writer struct {
	base    *url.URL
	out     strings.Builder
	title   strings.Builder
	breaks  int       // lines to end before the next text: 1, or 2 for an empty line between
	space   bool      // there is one before the next text
	pre     int       // preformatted elements that are open
	lists   int       // lists that are open
	mark    string    // what the next text begins with, as "- "
	link    string    // where the link that is open leads; "" if none is
	opening bool      // nothing of that link was written
	skip    atom.Atom // the element that is left out; 0 if none is
	skipped int       // elements of that name that are open
	inTitle bool
}

func (w *writer) token(t html.Token) {
	start := t.Type == html.StartTagToken || t.Type == html.SelfClosingTagToken
	switch {
	case w.skip != 0:
		if t.DataAtom == w.skip && t.Type == html.StartTagToken {
			w.skipped++
		}
		if t.DataAtom == w.skip && t.Type == html.EndTagToken {
			if w.skipped--; w.skipped == 0 {
				w.skip = 0
			}
		}
	case t.Type == html.TextToken && w.inTitle:
		w.title.WriteString(t.Data)
	case t.Type == html.TextToken:
		w.text(t.Data)
	case start:
		w.start(t)
	case t.Type == html.EndTagToken:
		w.close(t.DataAtom)
	}
}

// start begins an element.
func (w *writer) start(t html.Token) {
	switch t.DataAtom {
	case atom.Script, atom.Style, atom.Template, atom.Noscript, atom.Svg, atom.Iframe, atom.Object:
		if t.Type == html.StartTagToken {
			w.skip, w.skipped = t.DataAtom, 1
		}
	case atom.Title:
		w.inTitle = t.Type == html.StartTagToken
	case atom.Br:
		w.breakLine(1)
	case atom.Hr:
		w.breakLine(2)
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.breakLine(2)
		w.mark = strings.Repeat("#", int(t.Data[1]-'0')) + " "
	case atom.Ul, atom.Ol:
		w.lists++
		w.breakLine(1)
	case atom.Li:
		w.breakLine(1)
		w.mark = strings.Repeat("  ", max(0, min(w.lists, maxIndent)-1)) + "- "
	case atom.Td, atom.Th:
		if w.breaks == 0 && w.out.Len() > 0 {
			w.space = true
			w.write("|")
			w.space = true
		}
	case atom.Pre:
		w.breakLine(2)
		w.write("```")
		w.breakLine(1)
		w.pre++
	case atom.A:
		w.openLink(attribute(t, "href"))
	case atom.Img:
		if alt := strings.TrimSpace(attribute(t, "alt")); alt != "" {
			w.text("[image: " + alt + "]")
		}
	default:
		w.breakLine(blockBreaks(t.DataAtom))
	}
}

// close ends an element.
func (w *writer) close(name atom.Atom) {
	switch name {
	case atom.Title:
		w.inTitle = false
	case atom.A:
		w.closeLink()
	case atom.Pre:
		if w.pre > 0 {
			w.pre--
			w.breakLine(1)
			w.write("```")
			w.breakLine(2)
		}
	case atom.Ul, atom.Ol:
		w.lists = max(0, w.lists-1)
		w.breakLine(1)
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.mark = ""
		w.breakLine(2)
	default:
		w.breakLine(blockBreaks(name))
	}
}

// blockBreaks is how many lines end where an element begins or ends; 0 within a line.
func blockBreaks(name atom.Atom) int {
	switch name {
	case atom.P, atom.Blockquote, atom.Table, atom.Article, atom.Section, atom.Main, atom.Header, atom.Footer, atom.Nav, atom.Aside, atom.Dl,
		atom.Figure, atom.Form, atom.Fieldset, atom.Details:
		return 2
	case atom.Div, atom.Tr, atom.Li, atom.Dt, atom.Dd, atom.Address, atom.Caption, atom.Figcaption, atom.Summary, atom.Option, atom.Body:
		return 1
	default:
		return 0
	}
}

func attribute(t html.Token, name string) string {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
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
