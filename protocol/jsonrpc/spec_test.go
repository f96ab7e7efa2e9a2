package jsonrpc_test

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol/jsonrpc"
)

// TestSpecificationExamples plays the examples of section 7 of the JSON-RPC 2.0
// specification (https://www.jsonrpc.org/specification#examples) against a
// server with the methods that they name. Answers are compared as JSON; of an
// error the code, the message and the id count.
func TestSpecificationExamples(t *testing.T) {
	const parseError = `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}`
	const invalid = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null}`
	tests := []struct{ name, request, want string }{
		{"positional parameters", `{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}`, `{"jsonrpc":"2.0","result":19,"id":1}`},
		{"positional parameters, swapped", `{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}`, `{"jsonrpc":"2.0","result":-19,"id":2}`},
		{
			"named parameters", `{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}`,
			`{"jsonrpc":"2.0","result":19,"id":3}`,
		},
		{
			"named parameters, swapped", `{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}`,
			`{"jsonrpc":"2.0","result":19,"id":4}`,
		},
		{"a notification", `{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`, ``},
		{"a notification without params", `{"jsonrpc": "2.0", "method": "foobar"}`, ``},
		{
			"non-existent method", `{"jsonrpc": "2.0", "method": "foobar", "id": "1"}`,
			`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":"1"}`,
		},
		{"invalid JSON", `{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`, parseError},
		{"invalid request object", `{"jsonrpc": "2.0", "method": 1, "params": "bar"}`, invalid},
		{"batch, invalid JSON", `[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},{"jsonrpc": "2.0", "method"]`, parseError},
		{"an empty array", `[]`, invalid},
		{"an invalid batch, but not empty", `[1]`, `[` + invalid + `]`},
		{"an invalid batch", `[1,2,3]`, `[` + invalid + `,` + invalid + `,` + invalid + `]`},
		{
			"a batch", `[
				{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
				{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
				{"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
				{"foo": "boo"},
				{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
				{"jsonrpc": "2.0", "method": "get_data", "id": "9"}
			]`,
			`[{"jsonrpc":"2.0","result":7,"id":"1"},{"jsonrpc":"2.0","result":19,"id":"2"},` + invalid + `,` +
				`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":"5"},` +
				`{"jsonrpc":"2.0","result":["hello",5],"id":"9"}]`,
		},
		{
			"a batch of notifications",
			`[{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}]`, ``,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := answer(t, []byte(tt.request))
			if diff := cmp.Diff(canonical(t, []byte(tt.want)), canonical(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// answer is the examples' server.
func answer(t *testing.T, request []byte) []byte {
	t.Helper()
	body := jsonrpc.DecodeBody(request, 10)
	var answers [][]byte
	for _, item := range body.Items {
		switch {
		case item.Refused != nil:
			item.Refused.Error.Data = nil
			answers = append(answers, jsonrpc.AppendResponse(nil, *item.Refused))
		case !item.Request.IsNotification():
			answers = append(answers, jsonrpc.AppendResponse(nil, call(t, item.Request)))
		}
	}
	if body.Batch && len(answers) > 0 {
		return []byte("[" + string(bytes.Join(answers, []byte(","))) + "]")
	}
	return bytes.Join(answers, nil)
}

type operands struct {
	Minuend    int `json:"minuend"`
	Subtrahend int `json:"subtrahend"`
}

func call(t *testing.T, r jsonrpc.Request) jsonrpc.Response {
	t.Helper()
	var result any
	switch r.Method {
	case "subtract":
		var named operands
		if r.Positional {
			pair := unmarshal[[2]int](t, r.Params)
			named = operands{Minuend: pair[0], Subtrahend: pair[1]}
		} else {
			named = unmarshal[operands](t, r.Params)
		}
		result = named.Minuend - named.Subtrahend
	case "sum":
		sum := 0
		for _, n := range unmarshal[[]int](t, r.Params) {
			sum += n
		}
		result = sum
	case "get_data":
		result = []any{"hello", 5}
	default:
		return jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}}
	}
	raw, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return jsonrpc.Response{ID: r.ID, Result: raw}
}

func unmarshal[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func canonical(t *testing.T, data []byte) string {
	t.Helper()
	if len(data) == 0 {
		return ""
	}
	value := jsontext.Value(data)
	if err := value.Canonicalize(); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return string(value)
}
