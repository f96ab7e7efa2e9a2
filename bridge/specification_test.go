package bridge_test

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestSpecification has the examples of section 7 of the JSON-RPC 2.0
// specification (2013-01-04), in its order, and the specification's answers to
// them. What differs is this: list_agents stands for its methods that are there
// (subtract, sum, get_data), so results are others; our message names the method
// that is not found; and since our parameters are given by name alone (SPEC §6.1),
// the answer to positional ones is -32602, Invalid params, where it has a result.
func TestSpecification(t *testing.T) {
	const (
		positional = `"error": {"code": -32602, "message": "Invalid params"}`
		noMethod   = `"error": {"code": -32601, "message": "Method not found"}`
		invalid    = `{"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}`
		unreadable = `{"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}, "id": null}`
	)
	r := rigged(t, nil)
	for _, test := range []struct {
		name    string
		request string
		status  int
		want    string
	}{
		{
			"call with positional parameters", `{"jsonrpc": "2.0", "method": "list_agents", "params": [42, 23], "id": 1}`,
			200, `{"jsonrpc": "2.0", ` + positional + `, "id": 1}`,
		},
		{
			"call with positional parameters, in another order", `{"jsonrpc": "2.0", "method": "list_agents", "params": [23, 42], "id": 2}`,
			200, `{"jsonrpc": "2.0", ` + positional + `, "id": 2}`,
		},
		{
			"call with named parameters", `{"jsonrpc": "2.0", "method": "list_sessions", "params": {"offset": 23, "limit": 42}, "id": 3}`,
			200, `{"jsonrpc": "2.0", "result": 19, "id": 3}`,
		},
		{
			"call with named parameters, in another order", `{"jsonrpc": "2.0", "method": "list_sessions", "params": {"limit": 42, "offset": 23}, "id": 4}`,
			200, `{"jsonrpc": "2.0", "result": 19, "id": 4}`,
		},
		{"a notification", `{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`, 204, ""},
		{"a notification without params", `{"jsonrpc": "2.0", "method": "foobar"}`, 204, ""},
		{
			"call of non-existent method", `{"jsonrpc": "2.0", "method": "foobar", "id": "1"}`,
			200, `{"jsonrpc": "2.0", ` + noMethod + `, "id": "1"}`,
		},
		{"call with invalid JSON", `{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`, 400, unreadable},
		{"call with invalid Request object", `{"jsonrpc": "2.0", "method": 1, "params": "bar"}`, 400, invalid},
		{
			"call Batch, invalid JSON", `[
				{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
				{"jsonrpc": "2.0", "method"
			]`, 400, unreadable,
		},
		{"call with an empty Array", `[]`, 400, invalid},
		{"call with an invalid Batch (but not empty)", `[1]`, 200, "[" + invalid + "]"},
		{"call with invalid Batch", `[1,2,3]`, 200, "[" + invalid + "," + invalid + "," + invalid + "]"},
		{
			"call Batch", `[
				{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
				{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
				{"jsonrpc": "2.0", "method": "list_agents", "params": [42,23], "id": "2"},
				{"foo": "boo"},
				{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
				{"jsonrpc": "2.0", "method": "list_agents", "id": "9"}
			]`,
			200, `[
				{"jsonrpc": "2.0", ` + noMethod + `, "id": "1"},
				{"jsonrpc": "2.0", ` + positional + `, "id": "2"},
				` + invalid + `,
				{"jsonrpc": "2.0", ` + noMethod + `, "id": "5"},
				{"jsonrpc": "2.0", "result": ["hello", 5], "id": "9"}
			]`,
		},
		{
			"call Batch (all notifications)", `[
				{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},
				{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}
			]`, 204, "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, body := r.post("/", test.request)
			if response.StatusCode != test.status {
				t.Errorf("HTTP %d, want %d", response.StatusCode, test.status)
			}
			got, want := gjson.Parse(body), gjson.Parse(test.want)
			if got.IsArray() != want.IsArray() || len(got.Array()) != len(want.Array()) {
				t.Fatalf("got %s, want %s", body, test.want)
			}
			for i, answer := range got.Array() {
				specified := want.Array()[i]
				if answer.Get("jsonrpc").Raw != `"2.0"` || answer.Get("id").Raw != specified.Get("id").Raw ||
					answer.Get("result").Exists() != specified.Get("result").Exists() || answer.Get("error").Exists() == answer.Get("result").Exists() ||
					answer.Get("error.code").Raw != specified.Get("error.code").Raw ||
					!strings.HasPrefix(answer.Get("error.message").Str, specified.Get("error.message").Str) {
					t.Errorf("got %s, want %s", answer.Raw, specified.Raw)
				}
			}
		})
	}
}

// What is neither an error nor an answer to a call in JSON: bodies as curl sends
// them by itself, and notifications.
func TestNoError(t *testing.T) {
	r := rigged(t, nil)
	if response, body := r.post("/rpc", list, "Content-Type", "application/x-www-form-urlencoded"); response.StatusCode != 200 ||
		!gjson.Get(body, "result").Exists() {
		t.Errorf("curl's type: HTTP %d %s", response.StatusCode, body)
	}
	for _, body := range []string{`{"jsonrpc":"2.0","method":"list_agents"}`, `[{"jsonrpc":"2.0","method":"list_agents"}]`} {
		if response, answer := r.post("/rpc", body); response.StatusCode != 204 || answer != "" {
			t.Errorf("%s: HTTP %d %q", body, response.StatusCode, answer)
		}
	}
}
