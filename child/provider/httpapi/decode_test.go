package httpapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/protocol"
)

// Services have ways of their own with what they say beside an answer.
func TestDecode(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
	}
	type outer struct {
		Name  string         `json:"name"`
		Count uint64         `json:"count"`
		Seen  *uint64        `json:"seen"`
		Raw   jsontext.Value `json:"raw"`
		Inner inner          `json:"inner"`
		List  []inner        `json:"list"`
	}
	for _, tt := range []struct {
		name, data string
		want       outer
		problem    string // "" for none
	}{
		{"nothing", `{}`, outer{}, ""},
		{"null", `{"name":null,"count":null,"seen":null,"inner":null,"list":null}`, outer{}, ""},
		{"unknown members", `{"x":[{"y":1}],"name":"a"}`, outer{Name: "a"}, ""},
		{"other case", `{"Name":"a"}`, outer{}, ""},
		{"twice", `{"name":"a","name":"b"}`, outer{Name: "b"}, ""},
		{"a number for a name", `{"name":503}`, outer{Name: "503"}, ""},
		{"other types", `{"name":["a"],"count":"1","inner":{"name":{}}}`, outer{}, ""},
		{"counts", `{"count":12.9,"seen":0}`, outer{Count: 12, Seen: new(uint64(0))}, ""},
		{"a negative count", `{"count":-1}`, outer{}, ""},
		{"a huge count", `{"count":1e999,"seen":9007199254740993}`, outer{Count: 1 << 53, Seen: new(uint64(1 << 53))}, ""},
		{"invalid UTF-8", "{\"name\":\"a\xff\",\"raw\":\"\xff\"}", outer{Name: "a\uFFFD", Raw: jsontext.Value("\"\xff\"")}, ""},
		{"half a pair", `{"name":"a\ud83d","raw":"\ud83d"}`, outer{Name: "a\uFFFD", Raw: jsontext.Value(`"\ud83d"`)}, ""},
		{"no object", `7`, outer{}, "it is not an object"},
		{"no inner object", `{"inner":7}`, outer{}, `member "inner" is not an object`},
		{"no array", `{"list":{}}`, outer{}, `member "list" is not an array`},
		{"no object in an array", `{"list":[{},1]}`, outer{}, `member "list.1" is not an object`},
		{"cut off", `{"name":"a`, outer{}, "unexpected end of JSON input"},
		{"no JSON", `{"name":'a'}`, outer{}, `invalid character '\'' at start of value`},
		{"more than one value", `{} {}`, outer{}, "invalid character '{' after top-level value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got outer
			err := httpapi.Decode([]byte(tt.data), &got)
			if tt.problem != "" {
				if e, ok := errors.AsType[*httpapi.MalformedError](err); !ok || e.Problem != tt.problem {
					t.Errorf("error %v, want %s", err, tt.problem)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("error %v, -want +got\n%s", err, diff)
			}
		})
	}
}

// A piece of text that is no string is passed on as it is: there are services
// that send the input of a call as an object.
func TestText(t *testing.T) {
	for piece, want := range map[string]string{
		"": "", "null": "", `""`: "", `"a\n\u00e9"`: "a\né", `{"a":1}`: `{"a":1}`, "7": "7", "\"\xff\"": "\uFFFD", "[\"\xff\"]": "[\"\uFFFD\"]",
	} {
		var text httpapi.Text
		if got := text.Next(jsontext.Value(piece)); got != want || text.Rest() != "" {
			t.Errorf("%s became %q, want %q", piece, got, want)
		}
	}
}

// A list may be of any length, but not without an end, and an entry that is odd
// costs itself at most.
func TestGet(t *testing.T) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	server := httpapitest.Serve(t,
		httpapitest.Status(200, `{"data":[{"id":"a"},{"id":["b"]}]}`), httpapitest.Status(200, `[]`),
		httpapitest.Status(200, `{"data":[{"id":"`+strings.Repeat("x", 16<<20)+`"}]}`),
	)
	s := service(t, httpapi.Options{BaseURL: server.URL, APIKey: "k"})
	if err := s.Get(t.Context(), "/models", nil, &list); err != nil || len(list.Data) != 2 || list.Data[0].ID != "a" || list.Data[1].ID != "" {
		t.Errorf("error %v, list %v", err, list)
	}
	for _, want := range []struct{ text, brief string }{ // both were "it does not answer as HTTP does", in short
		{"the service sent a malformed list: it is not an object", "the service sent a malformed list"},
		{"the answer has more than 16 MiB", "the answer has more than 16 MiB"},
	} {
		_, err := s.Models(t.Context(), func(ctx context.Context) ([]protocol.Model, error) {
			err := s.Get(ctx, "/models", nil, &list)
			if err == nil || err.Error() != want.text {
				t.Errorf("error %v, want %s", err, want.text)
			}
			return nil, err
		})
		if err == nil || !strings.HasSuffix(provider.Brief(err), ": "+want.brief) {
			t.Errorf("error %v, want %s", err, want.brief)
		}
	}
}
