package client_test

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

// parameters are what the table says that a method takes, sorted; one that may be
// missing ends with a question mark.
func parameters(m api.Method) (names []string) {
	for f := range reflect.TypeOf(m.Params).Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if f.Type.Kind() == reflect.Pointer || f.Tag.Get("wire") != "" {
			name += "?"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// words writes list_agents as List, Agents.
func words(name string) []string {
	list := strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '.' })
	for i, w := range list {
		if w == "mcp" || w == "rpc" {
			list[i] = strings.ToUpper(w)
		} else {
			list[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return list
}

// lowerCamel writes list_agents as listAgents.
func lowerCamel(name string) string {
	list := words(name)
	list[0] = strings.ToLower(list[0])
	return strings.Join(list, "")
}

var pythonDef = regexp.MustCompile(`(?s)\n    (?:async )?def ([a-z]\w*)\(\s*(.*?),?\s*\) ->`)

// A method takes in Python what the table says, and no more, also where its answer
// is a stream, in both clients.
func TestPythonHasEveryParameter(t *testing.T) {
	for _, file := range []string{"_async.py", "_sync.py"} {
		text, err := os.ReadFile("python/nexus_client/" + file)
		if err != nil {
			t.Fatal(err)
		}
		defined := map[string][]string{}
		for _, found := range pythonDef.FindAllStringSubmatch(string(text), -1) {
			var params []string
			for _, p := range strings.Split(topLevel(found[2]), ",") {
				name, rest, typed := strings.Cut(strings.TrimSpace(p), ":")
				switch {
				case !typed: // self, and the mark after which names are given
				case strings.HasSuffix(rest, "= None"):
					params = append(params, name+"?")
				default:
					params = append(params, name)
				}
			}
			slices.Sort(params)
			defined[found[1]] = params
		}
		same(t, file, defined, func(m api.Method) string { return strings.ReplaceAll(m.Name, ".", "_") }, "_stream")
	}
}

var (
	typeScriptParams = regexp.MustCompile(`(?s)\nexport type (\w+)Params = \{(.*?)\n\};`)
	typeScriptMember = regexp.MustCompile(`(?m)^  (\w+\??):`)
	typeScriptMethod = regexp.MustCompile(`(?m)^  (\w+)\(params\??: (\w+)Params, options\?: CallOptions\)`)
)

// A method takes in TypeScript what the table says, and no more, also where its
// answer is a stream.
func TestTypeScriptHasEveryParameter(t *testing.T) {
	var text []byte
	for _, file := range []string{"methods.d.mts", "events.d.mts"} {
		part, err := os.ReadFile("typescript/" + file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	types, defined := map[string][]string{}, map[string][]string{}
	for _, found := range typeScriptParams.FindAllStringSubmatch(string(text), -1) {
		var params []string
		for _, member := range typeScriptMember.FindAllStringSubmatch(found[2], -1) {
			params = append(params, member[1])
		}
		slices.Sort(params)
		types[found[1]] = params
	}
	for _, found := range typeScriptMethod.FindAllStringSubmatch(string(text), -1) {
		defined[found[1]] = types[found[2]]
	}
	same(t, "the declarations", defined, func(m api.Method) string { return lowerCamel(m.Name) }, "Stream")
}

// same compares functions and their parameters with the table.
func same(t *testing.T, where string, defined map[string][]string, name func(api.Method) string, suffix string) {
	t.Helper()
	want := map[string][]string{}
	for _, m := range api.Methods {
		want[name(m)] = parameters(m)
		if m.Stream != nil {
			want[name(m)+suffix] = parameters(m)
		}
	}
	if diff := cmp.Diff(want, defined); diff != "" {
		t.Errorf("%s (-table +client):\n%s", where, diff)
	}
}

// topLevel leaves out what stands in brackets.
func topLevel(text string) string {
	depth := 0
	return strings.Map(func(r rune) rune {
		switch r {
		case '[', '(':
			depth++
		case ']', ')':
			depth--
			return -1
		}
		if depth > 0 {
			return -1
		}
		return r
	}, text)
}
