package openrpc

import (
	"fmt"
	"html"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/schema"
)

const pageHead = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>nexus: methods</title>
<style>
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
code { font-size: 14px } dt { margin-top: .6em } h2 { margin-top: 2em } .of { color: #666 }
</style>
`

// Page is the same as [Document] for people: a page of HTML without scripts or
// anything from elsewhere.
func Page(version, base string) []byte {
	d := describe(version, base)
	var out strings.Builder
	out.WriteString(pageHead)
	fmt.Fprintf(&out, "<h1>nexus %s</h1>\n<p>%s</p>\n<ul>\n", html.EscapeString(version), html.EscapeString(d.Info.Description))
	for _, m := range d.Methods {
		fmt.Fprintf(&out, "<li><a href=\"#%s\"><code>%[1]s</code></a> %s</li>\n", m.Name, html.EscapeString(m.Summary))
	}
	out.WriteString("</ul>\n")
	for _, m := range d.Methods {
		fmt.Fprintf(&out, "<h2 id=\"%s\"><code>%[1]s</code></h2>\n<p>%s. <span class=\"of\">%s, %s</span></p>\n",
			m.Name, html.EscapeString(m.Summary), m.Scope, m.Effect)
		for _, where := range m.Servers {
			fmt.Fprintf(&out, "<p><code>POST %s</code></p>\n", html.EscapeString(where.URL))
		}
		out.WriteString("<dl>\n")
		for _, p := range m.Params {
			optional := ""
			if !p.Required {
				optional = "?"
			}
			fmt.Fprintf(&out, "<dt><code>%s%s</code> <span class=\"of\">%s</span></dt><dd>%s</dd>\n",
				p.Name, optional, html.EscapeString(words(p.Schema)+bounds(p.Schema)), html.EscapeString(p.Description))
		}
		fmt.Fprintf(&out, "<dt>result</dt><dd>%s</dd>\n", html.EscapeString(words(m.Result.Schema)))
		for _, n := range m.Stream {
			fmt.Fprintf(&out, "<dt>stream: <code>%s</code></dt><dd>%s</dd>\n", n.Name, html.EscapeString(words(n.Schema)))
		}
		fmt.Fprintf(&out, "</dl>\n<p class=\"of\">errors: %s</p>\n", strings.Join(m.kinds(), ", "))
	}
	out.WriteString("</html>\n")
	return []byte(out.String())
}

// kinds are the errors of a method that not every method has.
func (m method) kinds() (kinds []string) {
	for _, e := range m.Errors[len(api.CommonErrors):] {
		kinds = append(kinds, strings.TrimPrefix(e.Ref, "#/components/errors/"))
	}
	if kinds == nil {
		return []string{"those of every method"}
	}
	return kinds
}

// bounds says within what a parameter must be, and what it is if it is missing.
func bounds(s *schema.Schema) string {
	text, unit := "", ""
	if s.MinLength != nil || s.MaxLength != nil {
		unit = " bytes"
	}
	for _, one := range []struct {
		words string
		n     *int64
	}{{"at least", s.Minimum}, {"above", s.Above}, {"at least", wide(s.MinLength)}, {"at most", s.Maximum}, {"at most", wide(s.MaxLength)}} {
		if one.n != nil {
			text += fmt.Sprintf(", %s %d%s", one.words, *one.n, unit)
		}
	}
	if s.Default != nil {
		text += fmt.Sprintf(", default %v", s.Default)
	}
	return text
}

func wide(n *int) *int64 {
	if n == nil {
		return nil
	}
	return new(int64(*n))
}

// words says what a schema allows; a question mark is for members that may be
// missing.
func words(s *schema.Schema) string {
	switch {
	case s.Enum != nil:
		var values []string
		for _, value := range s.Enum {
			if text, ok := value.(string); ok {
				values = append(values, text)
			}
		}
		return strings.Join(values, " | ")
	case s.Items != nil:
		return "list of " + words(s.Items)
	case s.Properties != nil:
		var names []string
		for _, m := range s.Properties.List {
			name := m.Name
			if !m.Required {
				name += "?"
			}
			if inner := words(m.Schema); strings.ContainsAny(inner, "{|") { // what else it is, its name tells
				name += " " + inner
			}
			names = append(names, name)
		}
		return "{" + strings.Join(names, ", ") + "}"
	}
	switch t := s.Type.(type) {
	case string:
		return t
	case []string:
		return strings.Join(t, " or ")
	default:
		return "any value"
	}
}
