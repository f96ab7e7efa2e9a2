package jsonrpc_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nexus.internal/protocol/jsonrpc"
)

var ids = cmpopts.EquateComparable(jsonrpc.ID{})

const maxItems = 10

func number(n int64) jsonrpc.ID { return jsonrpc.NumberID(n) }

func TestDecodeBodyAccepts(t *testing.T) {
	tests := []struct {
		name string
		body string
		want jsonrpc.Request
	}{
		{
			"call", `{"jsonrpc":"2.0","method":"send","params":{"content":"Hi"},"id":1}`,
			jsonrpc.Request{Method: "send", Params: jsontext.Value(`{"content":"Hi"}`), ID: number(1)},
		},
		{"without params", `{"jsonrpc":"2.0","method":"get_tokens","id":5}`, jsonrpc.Request{Method: "get_tokens", ID: number(5)}},
		{"notification", `{"jsonrpc":"2.0","method":"a"}`, jsonrpc.Request{Method: "a"}},
		{"null id is no notification", `{"jsonrpc":"2.0","method":"a","id":null}`, jsonrpc.Request{Method: "a", ID: jsonrpc.NullID}},
		{"string id", `{"jsonrpc":"2.0","method":"a","id":"x"}`, jsonrpc.Request{Method: "a", ID: jsonrpc.StringID("x")}},
		{
			"positional", `{"jsonrpc":"2.0","method":"a","params":[1, 2],"id":1}`,
			jsonrpc.Request{Method: "a", Params: jsontext.Value(`[1, 2]`), Positional: true, ID: number(1)},
		},
		{
			"auth is kept raw", `{"jsonrpc":"2.0","method":"a","id":1,"auth":{"timestamp":1, "signature":"x"}}`,
			jsonrpc.Request{Method: "a", ID: number(1), Auth: jsontext.Value(`{"timestamp":1, "signature":"x"}`)},
		},
		{"null is no params, and stays as it was signed", `{"jsonrpc":"2.0","method":"a","params":null,"id":1}`, jsonrpc.Request{
			Method: "a", Params: jsontext.Value(`null`), ID: number(1),
		}},
		{"others are ignored", `{"jsonrpc":"2.0","method":"a","id":1,"trace":{"x":[]},"params2":1}`, jsonrpc.Request{Method: "a", ID: number(1)}},
		{"escaped names are names", `{"jsonrpc":"2\u002e0","\u006dethod":"\u0061","i\u0064":1}`, jsonrpc.Request{Method: "a", ID: number(1)}},
		{"empty params", "\n {\"id\" : 1 ,\"params\":{ },\"method\":\"a\",\"jsonrpc\":\"2.0\"} \r\n", jsonrpc.Request{
			Method: "a", Params: jsontext.Value(`{ }`), ID: number(1),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := jsonrpc.DecodeBody([]byte(tt.body), maxItems)
			want := jsonrpc.Body{Items: []jsonrpc.Item{{Request: tt.want}}}
			if diff := cmp.Diff(want, got, ids); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if notification := got.Items[0].Request.IsNotification(); notification != (tt.name == "notification") {
				t.Errorf("IsNotification: got %v", notification)
			}
		})
	}
}

func TestDecodeBodyRefuses(t *testing.T) {
	const parse, invalid = jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest
	tests := []struct {
		name    string
		body    string
		code    jsonrpc.Code
		id      string
		details string // a part of it
	}{
		{"nothing", ``, parse, "null", "no value"},
		{"not JSON", `{"jsonrpc":"2.0","method":"a","id":1`, parse, "null", "unexpected EOF"},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"method\":\"\xff\",\"id\":1}", parse, "null", "UTF-8"},
		{"two values", `{"jsonrpc":"2.0","method":"a","id":1}{}`, parse, "null", "after the end"},
		{"byte order mark", "\ufeff{}", parse, "null", "it is a byte order mark"},
		{"scalar", `1`, invalid, "null", "a request is an object"},
		{"null", `null`, invalid, "null", "a request is an object"},
		{"nothing in it", `{}`, invalid, "null", `"jsonrpc" must be "2.0"`},
		{"no version", `{"method":"a","id":1}`, invalid, "1", `"jsonrpc" must be "2.0"`},
		{"version 1", `{"jsonrpc":"1.0","method":"a","id":1}`, invalid, "1", `"jsonrpc" must be "2.0"`},
		{"version a number", `{"jsonrpc":2.0,"method":"a","id":1}`, invalid, "1", `"jsonrpc" must be "2.0"`},
		{"no method", `{"jsonrpc":"2.0","id":"x"}`, invalid, `"x"`, `"method" must be a string`},
		{"method a number", `{"jsonrpc":"2.0","method":1,"id":1}`, invalid, "1", `"method" must be a string`},
		{"params a string", `{"jsonrpc":"2.0","method":"a","params":"b","id":1}`, invalid, "1", `"params"`},
		{"id an object", `{"jsonrpc":"2.0","method":"a","id":{}}`, invalid, "null", `"id" is a string`},
		{"id an array", `{"jsonrpc":"2.0","method":"a","id":[1]}`, invalid, "null", `"id" is a string`},
		{"id a boolean", `{"jsonrpc":"2.0","method":"a","id":true}`, invalid, "null", `"id" is a string`},
		{"id twice", `{"jsonrpc":"2.0","method":"a","id":1,"id":2}`, invalid, "null", `"id" stands twice`},
		{"id twice, one escaped", `{"jsonrpc":"2.0","method":"a","id":1,"\u0069d":1}`, invalid, "null", `"id" stands twice`},
		{"method twice", `{"jsonrpc":"2.0","method":"a","method":"b","id":1}`, invalid, "1", `"method" stands twice`},
		{"an unknown member twice", `{"jsonrpc":"2.0","method":"a","x":1,"x":2,"id":1}`, invalid, "1", "duplicate member"},
		{"twice inside params", `{"jsonrpc":"2.0","method":"a","params":{"a":1,"a":2},"id":1}`, invalid, "1", "duplicate member"},
		{"wrong case", `{"jsonrpc":"2.0","Method":"a","id":1}`, invalid, "1", `"Method" must be written "method"`},
		{"wrong case beside the right one", `{"jsonrpc":"2.0","method":"a","METHOD":"b","id":1}`, invalid, "1", `must be written "method"`},
		{"wrong case of the id", `{"jsonrpc":"2.0","method":"a","ID":1}`, invalid, "null", `must be written "id"`},
		{"wrong case by a long s", `{"jsonrpc":"2.0","method":"a","paramſ":{},"id":1}`, invalid, "1", `must be written "params"`},
		{"empty batch", ` [ ] `, invalid, "null", "empty"},
		{"large batch", "[" + strings.Repeat("1,", maxItems) + "1]", invalid, "null", "more than 10"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := jsonrpc.DecodeBody([]byte(tt.body), maxItems)
			if got.Batch || len(got.Items) != 1 || got.Items[0].Refused == nil {
				t.Fatalf("got %+v, want one refused item", got)
			}
			refused := got.Items[0].Refused
			if refused.Error.Code != tt.code || refused.ID.String() != tt.id || !strings.Contains(refused.Error.Data.Details, tt.details) {
				t.Errorf("got %s, want code %d, id %s, details with %q", jsonrpc.AppendResponse(nil, *refused), tt.code, tt.id, tt.details)
			}
		})
	}
}

// TestBatchItemsStandAlone: what is wrong with one item is no other's business.
func TestBatchItemsStandAlone(t *testing.T) {
	body := `[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b","id":2,"id":3},[],{"jsonrpc":"2.0","method":"c"}]`
	got := jsonrpc.DecodeBody([]byte(body), maxItems)
	if !got.Batch || len(got.Items) != 4 {
		t.Fatalf("got %+v", got)
	}
	if r := got.Items[0].Request; got.Items[0].Refused != nil || r.Method != "a" || r.ID != number(1) {
		t.Errorf("item 0: got %+v", got.Items[0])
	}
	for _, i := range []int{1, 2} {
		if r := got.Items[i].Refused; r == nil || r.ID != jsonrpc.NullID || r.Error.Code != jsonrpc.CodeInvalidRequest {
			t.Errorf("item %d: got %+v", i, got.Items[i])
		}
	}
	if r := got.Items[3].Request; got.Items[3].Refused != nil || !r.IsNotification() {
		t.Errorf("item 3: got %+v", got.Items[3])
	}
	full := "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"a","id":1},`, maxItems-1) + `{"jsonrpc":"2.0","method":"a","id":1}]`
	if got := jsonrpc.DecodeBody([]byte(full), maxItems); !got.Batch || len(got.Items) != maxItems {
		t.Errorf("a batch of exactly %d items: got %+v", maxItems, got)
	}
}

func TestDecodeResponse(t *testing.T) {
	tests := []struct {
		name string
		data string
		want jsonrpc.Response
		err  string // a part of it; "" for none
	}{
		{"result", `{"jsonrpc":"2.0","id":1,"result":{"a":[1.0]}}`, jsonrpc.Response{ID: number(1), Result: jsontext.Value(`{"a":[1.0]}`)}, ""},
		{"null result", `{"jsonrpc":"2.0","id":"x","result":null}`, jsonrpc.Response{ID: jsonrpc.StringID("x"), Result: jsontext.Value(`null`)}, ""},
		{"error", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}`, jsonrpc.Response{
			ID: jsonrpc.NullID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "m"},
		}, ""},
		{"error with data", `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"m","data":{"type":"T","details":"d","recovery_suggestions":["r"]}}}`, jsonrpc.Response{
			ID: number(1), Error: &jsonrpc.Error{
				Code: jsonrpc.CodeServerError, Message: "m",
				Data: &jsonrpc.ErrorData{Type: "T", Details: "d", RecoverySuggestions: []string{"r"}},
			},
		}, ""},
		{"error with others' data", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":[1]}}`, jsonrpc.Response{
			ID: number(1), Error: &jsonrpc.Error{Code: 1, Message: "m", Data: &jsonrpc.ErrorData{Details: "[1]"}},
		}, ""},
		{"error with null data", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":null}}`, jsonrpc.Response{
			ID: number(1), Error: &jsonrpc.Error{Code: 1, Message: "m"},
		}, ""},
		{"both", `{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"m"}}`, jsonrpc.Response{}, "either"},
		{"neither", `{"jsonrpc":"2.0","id":1}`, jsonrpc.Response{}, "either"},
		{"no id", `{"jsonrpc":"2.0","result":1}`, jsonrpc.Response{}, `"id"`},
		{"no version", `{"id":1,"result":1}`, jsonrpc.Response{}, `"jsonrpc"`},
		{"error a string", `{"jsonrpc":"2.0","id":1,"error":"m"}`, jsonrpc.Response{}, "must be an object"},
		{"error without a code", `{"jsonrpc":"2.0","id":1,"error":{"message":"m"}}`, jsonrpc.Response{}, `"code" is missing`},
		{"twice", `{"jsonrpc":"2.0","id":1,"result":1,"result":2}`, jsonrpc.Response{}, "duplicate"},
		{"wrong case", `{"jsonrpc":"2.0","id":1,"Result":1}`, jsonrpc.Response{}, `"Result"`},
		{"not an object", `[]`, jsonrpc.Response{}, "is an object"},
		{"not JSON", `<html>`, jsonrpc.Response{}, "invalid character"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := jsonrpc.DecodeResponse([]byte(tt.data))
			if (err == nil) != (tt.err == "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
				t.Fatalf("got error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got, ids); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzDecodeBody: every item is either a request that comes back unchanged
// through its own envelope, or a refusal that a client can read; ids are
// echoed as they were written.
func FuzzDecodeBody(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","method":"send","params":{"content":"Hi"},"id":1,"auth":{}}`))
	f.Add([]byte(`[{"jsonrpc":"2.0","method":"a","params":[1],"id":"\u0061"},{"id":1.50},{"id":1,"id":2},1]`))
	f.Add([]byte(`{"jsonrpc":"2.0","Method":"a","id":null}`))
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		body := jsonrpc.DecodeBody(data, maxItems)
		if len(body.Items) == 0 || len(body.Items) > maxItems || (!body.Batch && len(body.Items) != 1) {
			t.Fatalf("%d items, batch %v", len(body.Items), body.Batch)
		}
		for _, item := range body.Items {
			if item.Refused != nil {
				checkAnswer(t, data, *item.Refused)
				continue
			}
			checkAnswer(t, data, jsonrpc.Response{ID: item.Request.ID})
			again, err := jsonrpc.AppendRequest(nil, item.Request)
			if err != nil {
				t.Fatal(err)
			}
			want := jsonrpc.Body{Items: []jsonrpc.Item{{Request: item.Request}}}
			if diff := cmp.Diff(want, jsonrpc.DecodeBody(again, maxItems), ids); diff != "" {
				t.Fatalf("(-first +second):\n%s", diff)
			}
		}
	})
}

func checkAnswer(t *testing.T, data []byte, answer jsonrpc.Response) {
	if id := answer.ID.String(); id != "null" && !strings.Contains(string(data), id) {
		t.Fatalf("answer has the id %s, which nobody wrote", id)
	}
	line := jsonrpc.AppendResponse(nil, answer)
	got, err := jsonrpc.DecodeResponse(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if got.ID != answer.ID && !answer.ID.IsZero() {
		t.Fatalf("id %s came back as %s", answer.ID, got.ID)
	}
	if diff := cmp.Diff(answer.Error, got.Error); diff != "" {
		t.Fatalf("(-sent +received):\n%s", diff)
	}
}
