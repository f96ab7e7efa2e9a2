package api_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
)

// Every method says of a name that no agent can have which parameter has it and what is
// wanted, in the same words; none looks for such an agent.
func TestBadAgentNames(t *testing.T) {
	for _, test := range []struct {
		name   string
		decode func() error
	}{
		{"create_agent agent_id", decoded[api.CreateAgentParams](`{"agent_id":"a/b"}`)},
		{"create_agent parent_agent_id", decoded[api.CreateAgentParams](`{"parent_agent_id":"a/b"}`)},
		{"destroy_agent agent_id", decoded[api.AgentIDParams](`{"agent_id":"a/b"}`)},
		{"save_session agent_id", decoded[api.SaveSessionParams](`{"agent_id":"a/b"}`)},
		{"save_session session_name", decoded[api.SaveSessionParams](`{"agent_id":"a","session_name":"a/b"}`)},
		{"load_session session_name", decoded[api.LoadSessionParams](`{"session_name":"a/b"}`)},
		{"load_session agent_id", decoded[api.LoadSessionParams](`{"session_name":"a","agent_id":"a/b"}`)},
		{"rename_session old_name", decoded[api.RenameSessionParams](`{"old_name":"a/b","new_name":"c"}`)},
		{"delete_session session_name", decoded[api.DeleteSessionParams](`{"session_name":"a/b"}`)},
		{"execute_task agent_id", decoded[api.ExecuteTaskParams](`{"task_type":"testing","prompt":"x","agent_id":"a/b"}`)},
		{"create_plan agent_id", decoded[api.CreatePlanParams](`{"user_request":"x","agent_id":"a/b"}`)},
		{"update_context agent_id", decoded[api.UpdateContextParams](`{"action":"add","context_type":"state","data":{},"agent_id":"a/b"}`)},
		{"create_key agent_id", decoded[api.CreateKeyParams](`{"scope":"agent","agent_id":"a/b"}`)},
	} {
		_, param, _ := strings.Cut(test.name, " ")
		if err := test.decode(); err == nil || !strings.HasPrefix(err.Error(), "Invalid parameter "+param+": want a name like worker-1: ") {
			t.Errorf("%s: got %v", test.name, err)
		}
	}
}

func decoded[P any](params string) func() error {
	return func() error {
		_, err := api.Decode[P]([]byte(params))
		return err
	}
}

func TestValidAgentID(t *testing.T) {
	for _, id := range []string{"a", "worker-1", ".1", "A_b.c-d", "0", strings.Repeat("x", 63), "." + strings.Repeat("x", 63)} {
		if !api.ValidAgentID(id) {
			t.Errorf("%q is refused", id)
		}
	}
	for _, id := range []string{
		"", ".", "..", "-a", "_a", "..a", "a..b", "a/b", "a b", "a\n", "é", "a%2f", strings.Repeat("x", 64), "a\x00",
	} {
		if api.ValidAgentID(id) {
			t.Errorf("%q is accepted", id)
		}
	}
}

func TestMethods(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range api.Methods {
		if seen[m.Name] {
			t.Errorf("%s stands twice", m.Name)
		}
		seen[m.Name] = true
		if found, ok := api.Find(m.Name); !ok || found.Name != m.Name {
			t.Errorf("%s is not found", m.Name)
		}
		if m.Summary == "" || strings.HasSuffix(m.Summary, ".") {
			t.Errorf("%s: summary %q", m.Name, m.Summary)
		}
		for _, value := range []any{m.Params, m.Result} {
			if reflect.TypeOf(value).Kind() != reflect.Struct {
				t.Errorf("%s: %T is no struct", m.Name, value)
			}
		}
	}
	if _, ok := api.Find("Send"); ok {
		t.Error("names are found by another case")
	}
}

// Each row stands in Methods: a method that does not is served without a golden, a description
// and an audit line.
func TestEachRowIsInMethods(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "methods.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if of, ok := literal.Type.(*ast.IndexListExpr); ok && fmt.Sprint(of.X) == "Def" {
			for _, e := range literal.Elts {
				if member := e.(*ast.KeyValueExpr); fmt.Sprint(member.Key) == "Name" {
					rows = append(rows, strings.Trim(member.Value.(*ast.BasicLit).Value, `"`))
				}
			}
		}
		return true
	})
	for _, name := range rows {
		if _, ok := api.Find(name); !ok {
			t.Errorf("the row of %s is not in Methods", name)
		}
	}
	if len(rows) != len(api.Methods) {
		t.Errorf("%d rows were found for %d methods", len(rows), len(api.Methods))
	}
}

// The tag audit of each parameter says whether the audit log has it, so that no new one is
// left out, or kept, by oversight.
func TestEachParameterSaysWhetherItIsAudited(t *testing.T) {
	for _, m := range api.Methods {
		if m.Effect == api.Reads || m.Unaudited {
			continue
		}
		for f := range reflect.TypeOf(m.Params).Fields() {
			tag, typ := f.Tag.Get("audit"), f.Type
			if typ.Kind() == reflect.Pointer {
				typ = typ.Elem()
			}
			if tag == "" || tag == "text" && typ.Kind() != reflect.String {
				t.Errorf("%s: %s has the tag audit %q, want text for a string, rule or -", m.Name, f.Name, tag)
			}
		}
	}
}

// What a client sent appears in messages, and only so much of it.
func TestDecodeBoundsMessages(t *testing.T) {
	name := strings.Repeat("x", 10_000)
	_, err := api.Decode[api.SendParams]([]byte(fmt.Sprintf(`{"content":"a","%s":1}`, name)))
	e, ok := errors.AsType[*api.ParamError](err)
	if !ok || len(e.Error()) > 300 || !strings.HasPrefix(e.Error(), "Unknown parameter: xxx") {
		t.Errorf("got %.60q… of %d bytes", err, len(fmt.Sprint(err)))
	}
}

func ExampleDecode() {
	_, err := api.Decode[api.SendParams](nil)
	fmt.Println(err)
	_, err = api.Decode[api.SendParams]([]byte(`{"content":"hello","loud":true}`))
	fmt.Println(err)
	p, err := api.Decode[api.SendParams]([]byte(`{"content":"hello","request_id":null}`))
	fmt.Println(p.Content, err)
	// Output:
	// Missing required parameter: content
	// Unknown parameter: loud
	// hello <nil>
}

// A page that is too large is refused, as any other number is that is too large.
func TestListSessionsLimit(t *testing.T) {
	for limit, want := range map[uint64]string{1000: "<nil>", 1001: "Invalid parameter limit: want at most 1000, have 1001"} {
		if err := api.Check(api.ListSessionsParams{Limit: &limit}); fmt.Sprint(err) != want {
			t.Errorf("limit %d: %v, want %s", limit, err, want)
		}
	}
}

// A rule for a tool that is none did nothing, so that an agent kept what it was to lose.
func TestNamesOfTools(t *testing.T) {
	names, rules := []string{"glob", "Shell"}, map[string]protocol.ToolRule{"Shell": {Mode: "deny"}}
	for want, p := range map[string]any{
		`Invalid parameter disable_tools[1]: is "Shell", which is no tool; did you mean "shell"?`:  api.CreateAgentParams{DisableTools: &names},
		`Invalid parameter disabled_tools[1]: is "Shell", which is no tool; did you mean "shell"?`: api.SetPermissionsParams{DisabledTools: &names},
		`Invalid parameter tools: a name is "Shell", which is no tool; did you mean "shell"?`:      api.SetPermissionsParams{Tools: &rules},
	} {
		if err := api.Check(p); fmt.Sprint(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A mode that says nothing, as of a variable of a script that is not set, took a denial away.
func TestEmptyMode(t *testing.T) {
	_, err := api.Decode[api.SetPermissionsParams]([]byte(`{"tools":{"shell":{"mode":""}}}`))
	if want := `Invalid parameter tools.shell.mode: is "", want allow, ask or deny`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// FuzzDecode: whatever comes, the answer is parameters that pass their own
// check or a *ParamError with a bounded message in UTF-8.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"content":"a","attachments":[{"path":"/a"}],"timeout_s":1.5,"when_busy":"steer"}`))
	f.Add([]byte(`{"content":5}`))
	f.Add([]byte(`{"content":"a","content":"b"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := decode(data)
		if err == nil {
			return
		}
		e, ok := errors.AsType[*api.ParamError](err)
		if !ok || e.Problem == "" || len(e.Problem) > 1024 {
			t.Errorf("got %T of %d bytes", err, len(err.Error()))
		}
	})
}

// decode is what the server does: the envelope is checked first.
func decode(data []byte) (api.SendParams, error) {
	if !jsontext.Value(data).IsValid() || jsontext.Value(data).Kind() != '{' {
		return api.SendParams{}, nil
	}
	p, err := api.Decode[api.SendParams](data)
	if err == nil {
		err = api.Check(p)
	}
	return p, err
}

// What decides how programs are found and loaded is not for an agent to be given.
func TestCheckEnv(t *testing.T) {
	long, many := map[string]string{"A": strings.Repeat("x", api.MaxEnvSize)}, map[string]string{}
	for i := range api.MaxEnv + 1 {
		many[fmt.Sprint("V", i)] = ""
	}
	for _, env := range []map[string]string{
		{"": "x"},
		{"A=B": "x"},
		{"1A": "x"},
		{"A-B": "x"},
		{"A\n": "x"},
		{strings.Repeat("A", 129): "x"},
		{"A": "x\x00"},
		long, many,
		{"PATH": "/tmp"},
		{"path": "/tmp"},
		{"LD_PRELOAD": "x"},
		{"DYLD_INSERT_LIBRARIES": "x"},
		{"NEXUS_HOME": "/"},
		{"NEXUS3_API_KEY": "x"},
		{"BASH_ENV": "x"},
		{"BASH_FUNC_ls": "x"},
		{"OPENAI_API_KEY": "x"},
		{"GODEBUG": "x"},
	} {
		if _, ok := errors.AsType[*api.ParamError](api.CheckEnv(env, false)); !ok {
			t.Errorf("%.60q is accepted", fmt.Sprint(env))
		}
	}
	delete(many, "V0")
	for _, env := range []map[string]string{nil, {"_a1": ""}, {"GOFLAGS": "-mod=mod", "DATABASE_URL": "x=y\nz"}, many} {
		if err := api.CheckEnv(env, false); err != nil {
			t.Errorf("%.60q: %v", fmt.Sprint(env), err)
		}
	}
}

// The root of the file system is refused among the only paths that may be changed, however it is written: that is no
// bound, and read like one.
func TestWritableRoot(t *testing.T) {
	for params, want := range map[string]string{
		`{"write_paths":["/srv","/"]}`: "write_paths[1]: it is every file of the machine: name the directories that are meant",
		`{"write_paths":["/srv/../"]}`: "write_paths[0]: it is every file",
		`{"write_paths":["//"]}`:       "write_paths[0]: it is every file",
		`{"write_paths":[]}`:           "",
		`{"write_paths":["/srv/."]}`:   "",
		`{"allowed_paths":["/"]}`:      "",
		`{"blocked_paths":["/"]}`:      "",
		`{"write_paths":["srv"]}`:      "write_paths[0]: want an absolute path",
	} {
		_, err := api.Decode[api.SetPermissionsParams]([]byte(params))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", params, err, want)
		}
	}
	if _, err := api.Decode[api.CreateAgentParams]([]byte(`{"agent_id":"a","allowed_write_paths":["/"]}`)); err == nil || !strings.Contains(err.Error(), "allowed_write_paths[0]: it is every file") {
		t.Errorf("create_agent: %v", err)
	}
}
