package api_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
)

var (
	span   = regexp.MustCompile("`[^`]*`")
	nested = regexp.MustCompile(`\{[^{}]*\}`)
	word   = regexp.MustCompile(`[a-z_]+\??`)
)

// SPEC.md §6.3 names the parameters of each method, with a question mark where
// they may be missing, and no others.
func TestSpecNamesTheParameters(t *testing.T) {
	spec, err := os.ReadFile("../../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(spec), "### 6.3 ")
	section, _, _ = strings.Cut(section, "\n### ")
	said := map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		var names []string
		for _, code := range span.FindAllString(cells[2], -1) {
			code = nested.ReplaceAllString(nested.ReplaceAllString(code, ""), "") // two deep
			for _, name := range word.FindAllString(strings.ReplaceAll(code, ":true", "?"), -1) {
				if name != "or" {
					names = append(names, name)
				}
			}
		}
		method := strings.Trim(cells[1], " `")
		slices.Sort(names)
		if _, again := said[method]; !again {
			said[method] = names
		}
	}
	for _, m := range api.Methods {
		var want []string
		for f := range reflect.TypeOf(m.Params).Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if options != "" || f.Tag.Get("wire") != "" {
				name += "?"
			}
			if name != "-" {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		got, ok := said[m.Name]
		if !ok {
			t.Errorf("%s is not in SPEC.md", m.Name)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -parameters +SPEC.md:\n%s", m.Name, diff)
		}
	}
}
