package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/openrpc"
	"nexus.internal/fixtures"
)

// published are the schemas that rpc.discover tells of, by method: of the parameters
// as one object, of the result, and by "METHOD NOTIFICATION" of what a stream says.
// Those of what the server writes refuse members that they do not name.
type published struct {
	params, results map[string]*jsonschema.Resolved
}

func schemas(t *testing.T) published {
	t.Helper()
	document, err := openrpc.Document("0", "http://127.0.0.1:8765")
	if err != nil {
		t.Fatal(err)
	}
	closed := func(schema string) *jsonschema.Resolved {
		return resolve(t, strings.ReplaceAll(schema, `"properties":`, `"additionalProperties":false,"properties":`))
	}
	p := published{map[string]*jsonschema.Resolved{}, map[string]*jsonschema.Resolved{}}
	for _, m := range gjson.GetBytes(document, "methods").Array() {
		name := m.Get("name").Str
		var members, required []string
		for _, param := range m.Get("params").Array() {
			members = append(members, param.Get("name").Raw+":"+param.Get("schema").Raw)
			if param.Get("required").Bool() {
				required = append(required, param.Get("name").Raw)
			}
		}
		p.params[name] = resolve(t, fmt.Sprintf(`{"type":"object","additionalProperties":false,"properties":{%s},"required":[%s]}`,
			strings.Join(members, ","), strings.Join(required, ",")))
		p.results[name] = closed(m.Get("result.schema").Raw)
		for _, n := range m.Get("x-stream").Array() {
			p.results[name+" "+n.Get("name").Str] = closed(n.Get("schema").Raw)
		}
	}
	return p
}

func resolve(t *testing.T, raw string) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func validate(schema *jsonschema.Resolved, value gjson.Result) error {
	var v any
	if err := json.Unmarshal([]byte(value.Raw), &v); err != nil {
		return err
	}
	return schema.Validate(v)
}

// sometimes are parameters that are missed only beside certain others, of which no
// schema tells.
var sometimes = map[string]string{"create_agent": "initial_message", "load_session": "session_name", "create_key": "agent_id"}

// mistyped reports whether an error is about what the schema of the method says.
func mistyped(method, problem string) bool {
	missing, ok := strings.CutPrefix(problem, "Missing required parameter: ")
	return ok && sometimes[method] != missing || strings.HasPrefix(problem, "Unknown parameter: ") ||
		strings.Contains(problem, ": must be a string") || strings.Contains(problem, ": must be an")
}

// What was asked and answered in fixtures/rpc is what rpc.discover says: results have
// the members that their schema requires and no others than it names, and what their
// schema refuses of parameters the server does, and the reverse.
func TestGoldensAreAsPublished(t *testing.T) {
	p, seen := schemas(t), map[string]bool{}
	unmask := strings.NewReplacer(`"execution_time_ms":MS`, `"execution_time_ms":1`, `"updated_at":SECONDS`, `"updated_at":1`)
	for _, name := range fixtures.Glob(t, "rpc/*.txtar") {
		var asked []gjson.Result
		for _, f := range txtar.Parse(fixtures.Read(t, name)).Files {
			_, body, _ := strings.Cut(unmask.Replace(string(f.Data)), "\n\n")
			if strings.HasSuffix(f.Name, ".request") {
				asked = gjson.Parse(body).Array()
				continue
			}
			if !strings.HasSuffix(f.Name, ".response") {
				continue
			}
			for _, answer := range answers(body) {
				i := slices.IndexFunc(asked, func(q gjson.Result) bool {
					return answer.Get("method").Exists() || q.Get("id").Raw == answer.Get("id").Raw
				})
				if i < 0 {
					continue
				}
				method := asked[i].Get("method").Str
				m, known := api.Find(method)
				if !known || strings.HasSuffix(f.Name, "03-discover-of-agent.response") { // which is no method there
					continue
				}
				where := name + " " + f.Name + " " + method
				named(t, where, m, answer)
				if note := answer.Get("method").Str; note != "" {
					if err := validate(p.results[method+" "+note], answer.Get("params")); err != nil {
						t.Errorf("%s: %s: %v", where, note, err)
					}
					seen[method+" "+note] = true
					continue
				}
				params := asked[i].Get("params")
				if params.Raw == "" {
					params = gjson.Parse("{}")
				}
				refused := validate(p.params[method], params)
				problem := answer.Get("error.message").Str
				switch result := answer.Get("result"); {
				case result.Exists() && refused != nil:
					t.Errorf("%s: the schema refuses parameters that the server takes: %v", where, refused)
				case result.Exists():
					if err := validate(p.results[method], result); err != nil {
						t.Errorf("%s: %v", where, err)
					}
					seen[method] = true
				case mistyped(method, problem) && refused == nil:
					t.Errorf("%s: the schema takes what the server refuses: %s", where, problem)
				}
			}
		}
	}
	for name := range p.results {
		if !seen[name] && !strings.HasSuffix(name, " "+api.StreamRestart) { // which takes a crash
			t.Errorf("fixtures/rpc has no call of %s that succeeds", name)
		}
	}
}

// named checks that the row of a method has the error of an answer, if that is one of a
// method: others come before there is one.
func named(t *testing.T, where string, m api.Method, answer gjson.Result) {
	t.Helper()
	kind := api.ErrorKind(answer.Get("error.data.type").Str)
	if _, ofMethod := api.Errors[kind]; ofMethod && !slices.Contains(api.CommonErrors, kind) && !slices.Contains(m.Errors, kind) {
		t.Errorf("%s: the row of %s does not name the error %s", where, m.Name, kind)
	}
}

// The row of each method names the errors that fixtures/rpc/errors has of it.
func TestRowsNameTheirErrors(t *testing.T) {
	for _, name := range fixtures.Glob(t, "rpc/errors/*.txt") {
		asked, answered, _ := strings.Cut(string(fixtures.Read(t, name)), "\n---\n")
		_, request, _ := strings.Cut(asked, "\n\n")
		_, answer, _ := strings.Cut(answered, "\n\n")
		if m, known := api.Find(gjson.Get(request, "method").Str); known {
			named(t, name, m, gjson.Parse(answer))
		}
	}
}

// answers are the responses and notifications of a body: of JSON, or of a stream.
func answers(body string) (list []gjson.Result) {
	if !strings.HasPrefix(body, "event: ") {
		return gjson.Parse(body).Array()
	}
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			list = append(list, gjson.Parse(data))
		}
	}
	return list
}
