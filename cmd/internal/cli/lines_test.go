package cli_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/cmd/internal/cli"
)

// spoken is what rpc --stdio answers to lines, sorted, and its exit status.
func spoken(t *testing.T, handler http.HandlerFunc, lines string) (answers []string, got outcome) {
	t.Helper()
	var out, errs strings.Builder
	got = runWith(t, handler, cli.Options{Stdin: strings.NewReader(lines), Stdout: &out, Stderr: &errs}, "rpc", "--stdio")
	got.stderr = errs.String()
	answers = slices.Collect(strings.Lines(out.String()))
	slices.Sort(answers)
	return answers, got
}

// What was not found where it was called is called by a member here, not at a path.
func TestRPCLinesSayWhereMethodsAreCalled(t *testing.T) {
	refuse := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(404)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+gjson.GetBytes(body, "id").Raw+`,"error":{"code":-32601,"message":"Method not found","data":{"type":"METHOD_NOT_FOUND","details":"d","recovery_suggestions":["Methods of an agent are called at POST /agent/{id}."]}}}`)
	}
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"x"}}`: `Methods of an agent are called with its name in the member "agent".`,
		`{"jsonrpc":"2.0","id":1,"method":"list_agents","agent":"a"}`:       `Global methods are called without the member "agent".`,
		`{"jsonrpc":"2.0","id":1,"method":"nothing"}`:                       `See rpc.discover, without the member "agent", for all methods.`,
	} {
		answers, _ := spoken(t, refuse, line)
		if len(answers) != 1 || gjson.Get(answers[0], "error.data.recovery_suggestions.0").Str != want {
			t.Errorf("%s: %q, want %s", line, answers, want)
		}
	}
}

// TestRPCLines is about what stands on the lines: each has one answer, whatever is on it, and a
// notification has none.
func TestRPCLines(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+gjson.GetBytes(body, "id").Raw+`,"result":{"path":"`+r.URL.Path+`"}}`)
	}
	for _, tt := range []struct {
		name, lines string
		want        []string // how the answers begin
	}{
		{"a request", `{"jsonrpc":"2.0","id":"one","method":"x"}`, []string{`{"jsonrpc":"2.0","id":"one","result":{"path":"/rpc"}}`}},
		{"without the last end of line, and blank ones", "\n \n" + `{"jsonrpc":"2.0","id":1,"method":"x"}`, []string{`{"jsonrpc":"2.0","id":1,"result"`}},
		{"of an agent", `{"jsonrpc":"2.0","id":1,"method":"x","agent":"a b"}`, []string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid parameter agent_id`}},
		{"a notification", `{"jsonrpc":"2.0","method":"x"}`, nil},
		{"null", "null", []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`}},
		{
			"a batch", `[{"jsonrpc":"2.0","id":1,"method":"x","agent":"a"},{"jsonrpc":"2.0","method":"x"},5]`,
			[]string{`[{"jsonrpc":"2.0","id":1,"result":{"path":"/agent/a"}},{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`},
		},
		{"a batch of notifications", `[{"jsonrpc":"2.0","method":"x"}]`, nil},
		{"a stream that is none", `{"jsonrpc":"2.0","id":1,"method":"x","stream":true}`, []string{`{"jsonrpc":"2.0","id":1,"result":{"path":"/rpc"}}`}},
		{
			"wrong members", `{"jsonrpc":"2.0","id":1,"method":"x","stream":1}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"x","params":[]}` + "\n" +
				`{"jsonrpc":"2.0","id":3,"method":"x","auth":{}}`,
			[]string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32600`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32600`, `{"jsonrpc":"2.0","id":3,"error":{"code":-32600`},
		},
		{
			"an endless line, and another", strings.Repeat("x", 3<<20) + "\n" + `{"jsonrpc":"2.0","id":1,"method":"x"}`,
			[]string{`{"jsonrpc":"2.0","id":1,"result"`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request","data":{"type":"INVALID_REQUEST","details":"a line has more than 1048576 bytes"`},
		},
	} {
		answers, got := spoken(t, echo, tt.lines)
		fits := len(answers) == len(tt.want)
		for i := range min(len(answers), len(tt.want)) {
			fits = fits && strings.HasPrefix(answers[i], tt.want[i])
		}
		if !fits || got.status != 0 || got.stderr != "" {
			t.Errorf("%s: %+v\n got %q\nwant %q", tt.name, got, answers, tt.want)
		}
	}
}
