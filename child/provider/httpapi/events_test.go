package httpapi_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
)

// sent is an event, as text.
type sent struct{ name, data string }

func read(r io.Reader) (got []sent, err error) {
	for e, err := range httpapi.Events(r) {
		if err != nil {
			return got, err
		}
		got = append(got, sent{e.Name, string(e.Data)})
	}
	return got, nil
}

// The rules of the specification, each with all three ends of line, read whole
// and byte by byte.
func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name, stream string
		want         []sent
	}{
		{"nothing", "", nil},
		{"one", "data: a\n\n", []sent{{"", "a"}}},
		{"named", "event: x\ndata: a\n\ndata: b\n\n", []sent{{"x", "a"}, {"", "b"}}},
		{"several lines of data", "data: a\ndata\ndata:\ndata: b\n\n", []sent{{"", "a\n\n\nb"}}},
		{"one space is no part of the value", "data:a\n\ndata:  a\n\n", []sent{{"", "a"}, {"", " a"}}},
		{"a byte order mark", "\uFEFFdata: \uFEFFa\n\n", []sent{{"", "\uFEFFa"}}},
		{"comments", ": ping\n\n:\ndata: a\n: b\n\n", []sent{{"", "a"}}},
		{"other fields", "id: 1\nretry: 5\nmood: fine\nDATA: b\ndata : c\ndata: a\n\n", []sent{{"", "a"}}},
		{"no data", "event: x\n\nevent: y\ndata:\n\ndata: a\n\n", []sent{{"", "a"}}},
		{"blank lines", "\n\n\ndata: a\n\n\n\ndata: b\n\n", []sent{{"", "a"}, {"", "b"}}},
		{"a colon in the value", "data: {\"a\":1}\n\n", []sent{{"", `{"a":1}`}}},
		{"an end within an event", "data: a\n\ndata: b\n", []sent{{"", "a"}}},
		{"an end within a line", "data: a\n\ndata: b", []sent{{"", "a"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, end := range []string{"\n", "\r", "\r\n"} {
				stream := strings.ReplaceAll(tt.stream, "\n", end)
				whole, err := read(strings.NewReader(stream))
				if diff := cmp.Diff(tt.want, whole, cmp.AllowUnexported(sent{})); err != nil || diff != "" {
					t.Errorf("end %q: error %v, -want +got\n%s", end, err, diff)
				}
				bytewise, err := read(iotest.OneByteReader(strings.NewReader(stream)))
				if diff := cmp.Diff(tt.want, bytewise, cmp.AllowUnexported(sent{})); err != nil || diff != "" {
					t.Errorf("end %q, byte by byte: error %v, -want +got\n%s", end, err, diff)
				}
			}
		})
	}
}

// An event is passed on as soon as its blank line is there: the reader does not
// wait to see whether a LF follows a CR. A connection that fails after it is told.
func TestEventsDoNotWait(t *testing.T) {
	failed := errors.New("the connection failed")
	for _, stream := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		got, err := read(io.MultiReader(strings.NewReader(stream), iotest.ErrReader(failed)))
		if len(got) != 1 || !errors.Is(err, failed) {
			t.Errorf("%q gave %v, error %v", stream, got, err)
		}
	}
}

// An event of many lines is bounded as one long line is.
func TestALongEvent(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<20) + "\n"
	got, err := read(strings.NewReader(strings.Repeat(line, 31) + "\n" + strings.Repeat(line, 33)))
	if _, ok := errors.AsType[*httpapi.MalformedError](err); !ok || len(got) != 1 {
		t.Errorf("%d events, error %v", len(got), err)
	}
	// Lines that are no data count as well, comments do not.
	for field, want := range map[string]bool{"x: ": true, "event: ": true, ": ": false} {
		line := field + strings.Repeat("x", 1<<20) + "\n"
		_, err := read(strings.NewReader(strings.Repeat(line, 33)))
		if _, ok := errors.AsType[*httpapi.MalformedError](err); ok != want {
			t.Errorf("%q: error %v", field, err)
		}
	}
}

// FuzzEvents: whatever is sent, its events do not depend on how it is cut up nor
// on which end of line it has, and there are no more of them than blank lines.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("\uFEFFevent: a\ndata: b\ndata\n\n: c\r\rdata: d\r\n\r\nid: 1\n\n"))
	f.Add([]byte("data:\n\ndata: \r\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		same := func(other io.Reader, how string) []sent {
			want, err := read(strings.NewReader(string(stream)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(other)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(sent{})); err != nil || diff != "" {
				t.Errorf("%s: error %v, -want +got\n%s", how, err, diff)
			}
			return want
		}
		lines := strings.ReplaceAll(strings.ReplaceAll(string(stream), "\r\n", "\n"), "\r", "\n")
		same(iotest.OneByteReader(strings.NewReader(string(stream))), "byte by byte")
		same(strings.NewReader(strings.ReplaceAll(lines, "\n", "\r")), "with CR")
		got := same(strings.NewReader(strings.ReplaceAll(lines, "\n", "\r\n")), "with CRLF")
		if len(got) > strings.Count(lines, "\n\n") {
			t.Errorf("%d events in %q", len(got), stream)
		}
	})
}

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
	for _, want := range []string{"the service sent a malformed list: it is not an object", "the answer has more than 16 MiB"} {
		if err := s.Get(t.Context(), "/models", nil, &list); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
