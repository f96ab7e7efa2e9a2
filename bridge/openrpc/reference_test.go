package openrpc_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/tools/txtar"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/openrpc"
	"nexus.internal/fixtures"
)

// example is what was asked of a method and answered, in fixtures/rpc.
type example struct{ place, request, response string }

// examples has the shortest good answer of each method whose request has the most
// parameters.
func examples(t *testing.T) map[string]example {
	t.Helper()
	best, most := map[string]example{}, map[string]int{}
	for _, name := range fixtures.Glob(t, "rpc/*.txtar") {
		var asked example
		for _, f := range txtar.Parse(fixtures.Read(t, name)).Files {
			head, body, _ := strings.Cut(string(f.Data), "\n\n")
			body = strings.TrimSpace(body)
			if strings.HasSuffix(f.Name, ".request") {
				asked = example{place: strings.Join(strings.Fields(head)[:2], " "), request: body}
				continue
			}
			method := gjson.Get(asked.request, "method").Str
			params := len(gjson.Get(asked.request, "params").Map())
			if !gjson.Get(body, "result").IsObject() || strings.Contains(asked.request+body, "\n") || len(body) > 900 || strings.Contains(body, `"success":false`) {
				continue
			}
			asked.response = body
			now, there := best[method]
			if !there || params > most[method] || params == most[method] && len(body) < len(now.response) {
				best[method], most[method] = asked, params
			}
		}
	}
	return best
}

// bridge/METHODS.md is made of the table of methods and the golden messages. UPDATE=1
// writes it.
func TestReference(t *testing.T) {
	raw, err := openrpc.Document("0", "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.WriteString(`# Methods

Every method of the façade. SPEC.md describes requests and answers (§6.1, §6.2), and how the methods work together (§6.3).
Parameters are given by name. One without "required" may be missing or null; unknown ones are refused. A member of a result
with a question mark may be missing. Any method gives the errors ` + kinds(api.CommonErrors) + `; each method lists its other errors.
"Audit log" names the parameters that a line of the audit log has (SPEC §6.6).

This page is generated from the table of methods: ` + "`UPDATE=1 go test ./bridge/openrpc`" + ` writes it.

`)
	shown := examples(t)
	for i, m := range gjson.GetBytes(raw, "methods").Array() {
		row := api.Methods[i]
		fmt.Fprintf(&out, "## %s\n\n%s.\n\n", row.Name, row.Summary)
		var places []string
		if row.Scope != api.Agent {
			places = append(places, "`POST /rpc`")
		}
		if row.Scope != api.Global {
			places = append(places, "`POST /agent/{id}`")
		}
		draining := ""
		if row.Draining {
			draining = " It is answered also while the server drains."
		}
		fmt.Fprintf(&out, "Called at %s%s. %s%s\n\n", strings.Join(places, " or "), keysOf(row), agentsOf[row.Agents], draining)
		if params := m.Get("params").Array(); len(params) > 0 {
			out.WriteString("| parameter | type | meaning |\n|---|---|---|\n")
			for _, p := range params {
				parameter(&out, "", p, p.Get("schema"), p.Get("required").Bool())
			}
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "Result: `%s`\n\n", words(m.Get("result.schema")))
		for _, n := range m.Get("x-stream").Array() {
			fmt.Fprintf(&out, "- streamed `%s`: `%s`\n", n.Get("name"), words(n.Get("schema")))
		}
		if row.Stream != nil {
			out.WriteString("\n")
		}
		if row.Errors != nil {
			fmt.Fprintf(&out, "Errors: %s.\n\n", kinds(row.Errors))
		}
		out.WriteString(auditOf(row))
		if e, ok := shown[row.Name]; ok {
			fmt.Fprintf(&out, "```\n%s\n%s\n\n%s\n```\n\n", e.place, e.request, e.response)
		} else if row.Name != api.Discover.Name { // whose answer is this page
			t.Errorf("fixtures/rpc has no short result of %s in one line", row.Name)
		}
	}
	text := bytes.TrimRight(out.Bytes(), "\n")
	text = append(text, '\n')
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile("../METHODS.md", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("../METHODS.md"); err != nil || !bytes.Equal(got, text) {
		t.Errorf("bridge/METHODS.md is not what the table of methods says (%v): UPDATE=1 go test ./bridge/openrpc rewrites it", err)
	}
}

func kinds(list []api.ErrorKind) string {
	var names []string
	for _, kind := range list {
		names = append(names, "`"+string(kind)+"`")
	}
	return strings.Join(names, ", ")
}

// keysOf says which keys a method wants.
func keysOf(m api.Method) string {
	switch {
	case m.Scope == api.Global && m.Effect == api.Reads:
		return ", with a full or a read key"
	case m.Scope == api.Global:
		return ", with a full key"
	case m.Effect == api.Reads:
		return ", with a full key, a read key, or the agent's"
	case m.Grant.Unless != "":
		return fmt.Sprintf(", with a full key or the agent's; the agent's is only good for `%s` = `%s` unless it was made with `may_grant`", m.Grant.Param, m.Grant.Unless)
	case m.Grant.Act != "":
		return ", with a full key, or the agent's if that was made with `may_grant`"
	default:
		return ", with a full key or the agent's"
	}
}

// auditOf says what the audit log has of the calls of a method; nothing of one that only reads.
func auditOf(m api.Method) string {
	var texts, rules []string
	for _, a := range m.Audit {
		if a.Rule {
			rules = append(rules, "`"+a.Name+"`")
		} else {
			texts = append(texts, "`"+a.Name+"`")
		}
	}
	switch {
	case m.Effect == api.Reads:
		return ""
	case m.Unaudited:
		return "Audit log: none.\n\n"
	case m.Audit == nil:
		return "Audit log: no parameters.\n\n"
	case rules == nil:
		return "Audit log: " + strings.Join(texts, ", ") + ".\n\n"
	case texts == nil:
		return "Audit log: rules " + strings.Join(rules, ", ") + ".\n\n"
	default:
		return "Audit log: " + strings.Join(texts, ", ") + "; rules " + strings.Join(rules, ", ") + ".\n\n"
	}
}

// agentsOf says of which agents another agent may ask for a method.
var agentsOf = map[api.Reach]string{
	api.NoAgent:      "Agents cannot call it.",
	api.AnyAgent:     "Agents may call it.",
	api.Awake:        "An agent may call it for running agents, and for those that it created.",
	api.Peers:        "An agent may call it for agents whose permissions are within its own.",
	api.Created:      "An agent may call it for agents that it created.",
	api.Unrestricted: "Only a yolo agent may call it.",
}

// parameter writes the row of one parameter, and those of the members of an object below it.
func parameter(out *bytes.Buffer, prefix string, of, schema gjson.Result, required bool) {
	name := of.Get("name").Str
	description := of.Get("description").Str
	if prefix != "" {
		description = schema.Get("description").Str
	}
	typ := words(schema)
	if schema.Get("properties").Exists() {
		typ = "object"
	}
	for _, one := range []struct{ words, path string }{
		{"at least", "minimum"}, {"above", "exclusiveMinimum"}, {"at most", "maximum"}, {"default", "default"},
	} {
		if v := schema.Get(one.path); v.Exists() && (one.path != "minimum" || v.Int() > 0) { // a count is none below 0
			typ += fmt.Sprintf(", %s %s", one.words, v.String())
		}
	}
	if low, high := schema.Get("minLength"), schema.Get("maxLength"); low.Exists() {
		typ += fmt.Sprintf(", %d to %d bytes", low.Int(), high.Int())
	} else if high.Exists() {
		typ += fmt.Sprintf(", at most %d bytes", high.Int())
	}
	if required {
		typ += ", required"
	}
	fmt.Fprintf(out, "| `%s%s` | %s | %s |\n", prefix, name, strings.ReplaceAll(typ, "|", "\\|"), description)
	members := schema
	if schema.Get("items.properties").Exists() {
		members, name = schema.Get("items"), name+"[]"
	}
	var needed []string
	for _, n := range members.Get("required").Array() {
		needed = append(needed, n.Str)
	}
	members.Get("properties").ForEach(func(member, schema gjson.Result) bool {
		parameter(out, prefix+name+".", gjson.Parse(`{"name":`+member.Raw+`}`), schema, slices.Contains(needed, member.Str))
		return true
	})
}

// words says what a schema allows.
func words(s gjson.Result) string {
	switch {
	case s.Get("enum").Exists():
		var values []string
		for _, v := range s.Get("enum").Array() {
			if v.Type == gjson.String {
				values = append(values, v.Raw)
			}
		}
		return strings.Join(values, " | ")
	case s.Get("items").Exists():
		return "[" + words(s.Get("items")) + "]"
	case s.Get("properties").Exists():
		var needed, names []string
		for _, n := range s.Get("required").Array() {
			needed = append(needed, n.Str)
		}
		s.Get("properties").ForEach(func(name, member gjson.Result) bool {
			one := name.Str
			if !slices.Contains(needed, one) {
				one += "?"
			}
			if inner := words(member); strings.HasPrefix(inner, "{") || strings.HasPrefix(inner, "[{") {
				one += " " + inner
			}
			names = append(names, one)
			return true
		})
		return "{" + strings.Join(names, ", ") + "}"
	case s.Get("additionalProperties").IsObject():
		return "object of " + words(s.Get("additionalProperties"))
	}
	var types []string
	for _, one := range s.Get("type").Array() {
		if one.Str != "null" {
			types = append(types, one.Str)
		}
	}
	if types == nil {
		return "any value"
	}
	return strings.Join(types, " or ")
}
