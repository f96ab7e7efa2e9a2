package openrpc_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/schema"
)

// outline is the members of an object: by name, with a question mark where one may be
// missing, what is said of its own members; nil for nothing.
type outline map[string]any

// told reads members as SPEC.md writes them: a, b? {c, d}, e: [{f}], g:true.
func told(text *string) outline {
	o := outline{}
	name := regexp.MustCompile(`^[a-z_0-9]+\??`)
	for {
		*text = strings.TrimLeft(*text, " ,")
		found := name.FindString(*text)
		if found == "" {
			return o
		}
		*text = strings.TrimPrefix((*text)[len(found):], ":true")
		o[found] = nil
		for _, opening := range []string{": [{", " {"} {
			if rest, ok := strings.CutPrefix(*text, opening); ok {
				*text = rest
				o[found] = told(text)
				*text = strings.TrimPrefix(strings.TrimPrefix(*text, "}"), "]")
			}
		}
	}
}

// said is the same of a schema, as far as like tells of it.
func said(s *schema.Schema, like outline) outline {
	o := outline{}
	for _, m := range s.Properties.List {
		name := m.Name
		if !m.Required {
			name += "?"
		}
		o[name] = nil
		if inner, ok := like[name].(outline); ok {
			of := m.Schema
			if of.Items != nil {
				of = of.Items
			}
			o[name] = said(of, inner)
		}
	}
	return o
}

// SPEC.md §6.3 names the members of each method's result, with a question mark where
// they may be missing, and no others: in the first code of the last column.
func TestSpecNamesTheResults(t *testing.T) {
	spec, err := os.ReadFile("../../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(spec), "### 6.3 ")
	section, _, _ = strings.Cut(section, "\n### ")
	found := map[string]outline{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		if text, ok := strings.CutPrefix(strings.TrimSpace(cells[3]), "`"); ok {
			text, _, _ = strings.Cut(text, "`")
			found[strings.Trim(cells[1], " `")] = told(&text)
			if text != "" {
				t.Errorf("%s: %q cannot be read", cells[1], text)
			}
		}
	}
	for _, m := range api.Methods {
		if m.Name == "rpc.discover" { // whose result is somebody else's specification
			continue
		}
		want := found[m.Name]
		got := said(schema.Of(reflect.TypeOf(m.Result), schema.Written), want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-SPEC.md +schema):\n%s", m.Name, diff)
		}
	}
}
