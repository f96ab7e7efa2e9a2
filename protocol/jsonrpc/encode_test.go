package jsonrpc_test

import (
	"math"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/jsonrpc"
)

func TestAppendResponse(t *testing.T) {
	id := jsonrpc.DecodeBody([]byte(`{"jsonrpc":"2.0","method":"a","id":"\u0061\/ü"}`), 1).Items[0].Request.ID
	tests := []struct {
		name string
		r    jsonrpc.Response
		want string
	}{
		{"result", jsonrpc.Response{ID: number(6), Result: jsontext.Value(`{"success":true}`)}, `{"jsonrpc":"2.0","id":6,"result":{"success":true}}`},
		{"no result", jsonrpc.Response{ID: number(6)}, `{"jsonrpc":"2.0","id":6,"result":null}`},
		{"no id", jsonrpc.Response{}, `{"jsonrpc":"2.0","id":null,"result":null}`},
		{"id byte for byte", jsonrpc.Response{ID: id}, `{"jsonrpc":"2.0","id":"\u0061\/ü","result":null}`},
		{
			"error",
			jsonrpc.Response{ID: number(1), Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found: unknown"}},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: unknown"}}`,
		},
		{
			"an error beats a result",
			jsonrpc.Response{ID: number(1), Result: jsontext.Value(`1`), Error: &jsonrpc.Error{Code: 1, Message: "m"}},
			`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`,
		},
		{
			"data is whole",
			jsonrpc.Response{ID: number(1), Error: &jsonrpc.Error{Code: 1, Message: "m\xff", Data: &jsonrpc.ErrorData{Type: "TIMEOUT"}}},
			`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m` + "\ufffd" + `","data":{"type":"TIMEOUT","details":"","recovery_suggestions":[]}}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(jsonrpc.AppendResponse([]byte("x"), tt.r)); got != "x"+tt.want {
				t.Errorf("got %s\nwant x%s", got, tt.want)
			}
		})
	}
}

func TestAppendRequest(t *testing.T) {
	tests := []struct {
		name string
		r    jsonrpc.Request
		want string // "" for an error
	}{
		{"least", jsonrpc.Request{Method: "a"}, `{"jsonrpc":"2.0","method":"a"}`},
		{
			"all",
			jsonrpc.Request{Method: "a", Params: jsontext.Value(`{"b":1}`), ID: number(-1), Auth: jsontext.Value(`{}`)},
			`{"jsonrpc":"2.0","method":"a","params":{"b":1},"id":-1,"auth":{}}`,
		},
		{"positional", jsonrpc.Request{Method: "a", Params: jsontext.Value(`[1]`), Positional: true}, `{"jsonrpc":"2.0","method":"a","params":[1]}`},
		{"an array by mistake", jsonrpc.Request{Method: "a", Params: jsontext.Value(`[1]`)}, ""},
		{"params cut off", jsonrpc.Request{Method: "a", Params: jsontext.Value(`{"b":`)}, ""},
		{"empty params", jsonrpc.Request{Method: "a", Params: jsontext.Value(``)}, ""},
		{"auth cut off", jsonrpc.Request{Method: "a", Auth: jsontext.Value(`{`)}, ""},
		{"method not UTF-8", jsonrpc.Request{Method: "\xff"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := jsonrpc.AppendRequest([]byte("x"), tt.r)
			if (err != nil) != (tt.want == "") || string(got) != "x"+tt.want {
				t.Errorf("got %s, %v\nwant x%s", got, err, tt.want)
			}
		})
	}
}

func TestAppendNotification(t *testing.T) {
	got, err := jsonrpc.AppendNotification(nil, "stream_end", struct {
		StreamID string `json:"stream_id"`
	}{"s1"})
	if want := `{"jsonrpc":"2.0","method":"stream_end","params":{"stream_id":"s1"}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if got, err := jsonrpc.AppendNotification(nil, "a", nil); err != nil || string(got) != `{"jsonrpc":"2.0","method":"a"}` {
		t.Errorf("got %s, %v", got, err)
	}
	for _, params := range []any{1, "s", []int{1}, math.NaN()} {
		if got, err := jsonrpc.AppendNotification(nil, "a", params); err == nil {
			t.Errorf("%v: got %s", params, got)
		}
	}
}

func TestIDs(t *testing.T) {
	tests := []struct {
		id   jsonrpc.ID
		want string
	}{
		{jsonrpc.ID{}, ""},
		{jsonrpc.NullID, "null"},
		{jsonrpc.NumberID(math.MinInt64), "-9223372036854775808"},
		{jsonrpc.StringID("a\"\n<ü>\xff"), `"a\"\n<ü>` + "\ufffd" + `"`},
		{jsonrpc.StringID(""), `""`},
	}
	for _, tt := range tests {
		if got := tt.id.String(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
		if tt.id.IsZero() != (tt.want == "") {
			t.Errorf("%s: IsZero is %v", tt.want, tt.id.IsZero())
		}
	}
}

func TestErrorText(t *testing.T) {
	if got := (&jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "Parse error"}).Error(); got != "Parse error (-32700)" {
		t.Errorf("got %q", got)
	}
}
