package openrpc

import (
	"fmt"
	"html"
	"strings"

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
			fmt.Fprintf(&out, "<dt><code>%s%s</code></dt><dd>%s</dd>\n", p.Name, optional, html.EscapeString(words(p.Schema)))
		}
		fmt.Fprintf(&out, "<dt>result</dt><dd>%s</dd>\n</dl>\n", html.EscapeString(words(m.Result.Schema)))
	}
	out.WriteString("</html>\n")
	return []byte(out.String())
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
