package tokencount_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/tokencount"
)

const (
	openaiStream = `data: {"id":"1","choices":[{"delta":{"content":"Hello"}}],"usage":null}

data: {"id":"1","choices":[{"delta":{"content":" {\"usage\":{\"prompt_tokens\":99999}}"}}]}

: OPENROUTER PROCESSING

data: {"id":"1","choices":[],"usage":{"prompt_tokens":120,"completion_tokens":7,"total_tokens":127,"prompt_tokens_details":{"cached_tokens":100}}}

data: [DONE]

`
	anthropicStream = "event: message_start\r\n" +
		`data: {"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":25,"cache_creation_input_tokens":40,"cache_read_input_tokens":300,"output_tokens":1}}}` + "\r\n\r\n" +
		"event: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\n" +
		"event: content_block_delta\r\n" +
		`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, you there"}}` + "\r\n\r\n" +
		"event: message_delta\r\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}` + "\r\n\r\n" +
		"event: message_stop\r\ndata: {\"type\":\"message_stop\"}\r\n\r\n"
)

func form(events bool) tokencount.Form {
	if events {
		return tokencount.EventStream
	}
	return tokencount.JSON
}

// count reads an answer in pieces of the given sizes, over and over; it returns what a
// request of asked tokens used and how many bytes were held at most.
func count(answer []byte, events bool, asked uint64, sizes ...int) (used tokencount.Count, held int) {
	m := tokencount.Answer{Form: form(events)}
	for i := 0; len(answer) > 0; i++ {
		n := min(max(sizes[i%len(sizes)], 1), len(answer))
		_, _ = m.Write(answer[:n])
		answer = answer[n:]
		held = max(held, m.Held())
	}
	return m.Count(asked), held
}

func TestAnswer(t *testing.T) {
	tests := []struct {
		name, answer string
		events       bool
		want         tokencount.Count
	}{
		{"OpenAI's stream", openaiStream, true, tokencount.Count{Input: 20, CacheRead: 100, Output: 7}},
		{"Anthropic's stream", anthropicStream, true, tokencount.Count{Input: 25, CacheRead: 300, CacheCreation: 40, Output: 15}},
		{
			"OpenAI's answer", `{"choices":[{"message":{"content":"x","usage":{"prompt_tokens":1}}}],"usage":{"prompt_tokens":12,"completion_tokens":3}}`,
			false,
			tokencount.Count{Input: 12, Output: 3},
		},
		{
			"Anthropic's answer", ` {"content":[{"type":"text","text":"\"usage\":{"}],"usage" : {"input_tokens":5,"output_tokens":6,"cache_creation":{"ephemeral_5m_input_tokens":2},"cache_creation_input_tokens":2} }`,
			false,
			tokencount.Count{Input: 5, CacheCreation: 2, Output: 6},
		},
		{
			"OpenAI's responses", "data: {\"type\":\"response.completed\",\"response\":{\"output\":[],\"usage\":{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":10},\"output_tokens\":4}}}\n\n",
			true,
			tokencount.Count{Input: 20, CacheRead: 10, Output: 4},
		},
		{
			"sums in each event", "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":9}}\n\n",
			true,
			tokencount.Count{Input: 5, Output: 9},
		},
		{"escapes in a usage object", `{"usage":{"note":"\\u007d \"}\" \\\\","prompt_tokens":12,"completion_tokens":3}}`, false, tokencount.Count{Input: 12, Output: 3}},
		{"DeepSeek", `{"usage":{"prompt_tokens":12,"prompt_cache_hit_tokens":8,"completion_tokens":3}}`, false, tokencount.Count{Input: 4, CacheRead: 8, Output: 3}},
		{
			"OpenRouter", `{"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":100,"cache_write_tokens":15},"completion_tokens":3}}`,
			false,
			tokencount.Count{Input: 5, CacheRead: 100, CacheCreation: 15, Output: 3},
		},
		{"counts of nothing", `{"choices":[{"message":{"content":"eight by"}}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, false, tokencount.Count{Input: 50, Output: 2, Estimated: true}},
		{"cut off before a count", openaiStream[:150], true, tokencount.Count{Input: 50, Output: 2, Estimated: true}},
		{"cut off after its input", anthropicStream[:strings.Index(anthropicStream, "event: message_delta")], true, tokencount.Count{Input: 25, CacheRead: 300, CacheCreation: 40, Output: 4, Estimated: true}},
		{"an event that broke off", "data: {\"choices\":[{\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":9}}\n\n", true, tokencount.Count{Input: 5, Output: 9}},
		{"nothing", "", false, tokencount.Count{Input: 50, Estimated: true}},
		{"no JSON", "]]}}{\"usage\":{]\"", false, tokencount.Count{Input: 50, Estimated: true}},
		{"counts that were made up", `{"usage":{"prompt_tokens":-5,"completion_tokens":1e300}}`, false, tokencount.Count{Input: 50, Output: 1 << 32, Estimated: true}},
		{"a usage object without an end", `{"usage":{"x":"` + strings.Repeat("y", 1<<16) + `","prompt_tokens":1}}`, false, tokencount.Count{Input: 50, Estimated: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for n := 1; n <= max(min(len(tt.answer), 1000), 1); n++ { // split at every byte
				got, held := count([]byte(tt.answer), tt.events, 50, n, max(len(tt.answer)-n, 1))
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Fatalf("split at %d (-want +got):\n%s", n, diff)
				}
				if held > 2*tokencount.MaxUsage {
					t.Fatalf("held %d bytes", held)
				}
			}
		})
	}
}

// An answer is whole once the model has given its reason to end it, or the JSON is.
func TestWhole(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		events bool
		want   bool
	}{
		"no reason yet":       {"data: {\"choices\":[{\"delta\":{\"content\":\"\\\"finish_reason\\\":\\\"stop\\\"\"},\"finish_reason\":null}]}\n\n", true, false},
		"an empty reason":     {"data: {\"choices\":[{\"finish_reason\":\"\"}]}\n\ndata: [DONE]\n\n", true, false},
		"a reason":            {"data: {\"choices\":[{\"finish_reason\":\"length\"}]}\n\n", true, true},
		"Anthropic's":         {anthropicStream, true, true},
		"OpenAI's response":   {"data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}}\n\n", true, true},
		"JSON":                {`{"choices":[{"message":{"content":"x"}}]}`, false, true},
		"JSON that broke off": {`{"choices":[{"message":{"content":"x"}}]`, false, false},
	} {
		a := tokencount.Answer{Form: form(tt.events)}
		_, _ = a.Write([]byte(tt.answer))
		if a.Whole() != tt.want {
			t.Errorf("%s: got %v", name, a.Whole())
		}
	}
}

func TestRequestTokens(t *testing.T) {
	picture := strings.Repeat("A", 400_000)
	for name, tt := range map[string]struct {
		body     string
		min, max uint64
	}{
		"text":    {`{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 800) + `"}]}`, 1000, 1020},
		"a photo": {`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + picture + `"}}]}]}`, 1600, 1640},
		"nothing": {"", 0, 0},
	} {
		var r tokencount.Request
		_, _ = r.Write([]byte(tt.body))
		if got := r.Tokens(); got < tt.min || got > tt.max {
			t.Errorf("%s: got %d tokens, want %d to %d", name, got, tt.min, tt.max)
		}
	}
}

// The model of a request is its own member, however the request is cut into pieces.
func TestRequestModel(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[{"model":"no"}],"model":"gpt-5","tools":[]}`: "gpt-5",
		`{"model":"a\/\"b\u00e9","x":"y"}`:                         `a/"bé`,
		`{"model":7}`:                                              "", `{"x":"model"}`: "", `["model","x"]`: "", `{"model":{"model":"x"}}`: "",
		`{"model":"` + strings.Repeat("m", 3000) + `"}`: "",
	} {
		var r, whole tokencount.Request
		for i := range len(body) {
			_, _ = r.Write([]byte(body[i : i+1]))
		}
		_, _ = whole.Write([]byte(body))
		if r.Model() != want || whole.Model() != want {
			t.Errorf("%.40s: got %.40q in pieces and %.40q whole, want %q", body, r.Model(), whole.Model(), want)
		}
	}
}

// readRequest reads a request in pieces of n bytes.
func readRequest(body string, n int) *tokencount.Request {
	var r tokencount.Request
	for len(body) > 0 {
		n := min(n, len(body))
		_, _ = r.Write([]byte(body[:n]))
		body = body[n:]
	}
	return &r
}

// A service may take the last of two models, or one whose name is escaped or in capitals, or read the bytes as another
// encoding: such requests are found out, however they are cut into pieces, and no others.
func TestRequestErr(t *testing.T) {
	const (
		models, escaped = "must name its model once", "write it without escapes"
		mark            = "unexpected "
	)
	for _, tt := range []struct{ body, want string }{
		{`{"model":"m","messages":[{"role":"user","content":"\u00e9\ud83d\n","model":"x","mod\u0065l":1}],"n":-1.5e+3,"x":[true,false,null,{},[]]}` + " \r\n\t", ""},
		{"{}", ""},
		{`{"model":"m","model":"m"}`, models},
		{`{"model":null,"model":"m"}`, models},
		{`{"model":"m","x":"` + strings.Repeat("y", 40<<10) + `","model":"big"}`, models},
		{`{"Model":"m"}`, models},
		{`{"model":"m","\u006dodel":"big"}`, escaped},
		{`{"model":"m","modeL":"big"}`, models},
		{`{"a\"":1}`, escaped},
		{`{"model":"m","background":false,"x":{"background":true},"background_x":true,"t":[true]}`, ""},
		{`{"model":"m","background":null}`, ""},
		{`{"model":"m","background" : true}`, "in the background"},
		{`{"Background":true,"model":"m"}`, "in the background"},
		{`{"model":"m"}{"model":"big"}`, mark + `"{"`},
		{"{\"x\":\"\u0000\"}", mark},
		{"{\x00\"\x00m\x00\"\x00:\x001\x00}\x00", mark + `"\x00"`},
		{"{\"\x00\":1}", mark},
		{"\uFEFF{}", mark},
		{`["model"]`, mark},
		{`"model"`, mark},
		{"7", mark},
		{`{'model':"m"}`, mark},
		{`{model:"m"}`, mark},
		{`{"model":"m",model:"big"}`, mark},
		{`{"a":1}//`, mark},
		{`{"a":1/*"model":"m"*/}`, mark},
	} {
		for _, n := range []int{1, 2, 7, len(tt.body)} {
			r := readRequest(tt.body, n)
			switch err := r.Err(); {
			case tt.want == "":
				if err != nil || !r.Whole() {
					t.Errorf("%.60q in pieces of %d: got %v, whole %v", tt.body, n, err, r.Whole())
				}
			case err == nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("%.60q in pieces of %d: got %v, want %s", tt.body, n, err, tt.want)
			}
		}
	}
	for body, want := range map[string]bool{
		`{"stream":true}`: true, `{"stream":true,"stream_options":{"include_usage":true}}`: false, `{"stream_options":{"x":[1],"include_usage" : true},"Stream":true}`: false,
		`{"stream":false}`: false, `{"x":{"stream":true}}`: false, `{"stream":true,"stream_options":{"include_usage":false}}`: true, `{"stream":true,"stream_options":null}`: true,
		`{"stream":true,"stream_options":{"include_usage":true,"include_usage":false}}`:            true,
		`{"stream":true,"stream_options":{"include_usage":true,"include\u005fusage":false}}`:       true,
		`{"stream":true,"stream_options":{"include_usage":true},"Stream_options":{}}`:              true,
		`{"stream":true,"stream_options":{"include_usage":true},"stream_options":null}`:            true,
		`{"stream":true,"stream_options":{"x":{"include_usage":true}},"y":{"include_usage":true}}`: true,
		`{"stream":true,"stream_options":[{"include_usage":true}]}`:                                true,
	} {
		for _, n := range []int{1, 3, len(body)} {
			if r := readRequest(body, n); r.Unasked() != want || r.Err() != nil {
				t.Errorf("%s in pieces of %d: unasked %v, %v", body, n, r.Unasked(), r.Err())
			}
		}
	}
	for body, want := range map[string]string{
		`{"stream":"true"}`: "stream", `{"stream":1}`: "stream", `{"stream" : 1.0}`: "stream", `{"stream":"on","x":1}`: "stream", `{"Stream":-1}`: "Stream",
		`{"stream":[true]}`: "stream", `{"stream":{"a":1}}`: "stream", `{"background":"true"}`: "background", `{"background":1}`: "background", `{"stream":false,"stream":1}`: "stream",
		`{"stream": true ,"background":false}`: "", `{"stream":null,"background":null}`: "", `{"x":{"stream":1},"streams":1,"y":"stream","stream":false}`: "",
	} {
		for _, n := range []int{1, 3, len(body)} {
			if r := readRequest(body, n); r.Vague() != want || r.Err() != nil {
				t.Errorf("%s in pieces of %d: vague %q, %v, want %q", body, n, r.Vague(), r.Err(), want)
			}
		}
	}
	for _, body := range []string{"", "{", `{"model":"m"`, `{"a":1`, `{"a":"}`} {
		if r := readRequest(body, 1); r.Err() != nil || r.Whole() {
			t.Errorf("%s: got %v, whole %v", body, r.Err(), r.Whole())
		}
	}
	if !readRequest(`{"model":"m","models":["big"]}`, 3).Others() || readRequest(`{"model":"m","x":{"models":1}}`, 3).Others() {
		t.Error("other models are not told well")
	}
}

// A JSON object is taken but for what is said of its names, and its model is the one that a reader of JSON finds.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{`{"model":"m","x":[1,{"a":"\u00e9\\"}]}`, `{"model":"a","model":"b"}`, `{"\u006dodel":7}`, `{"a":-0.1e5,"b":[[]]} `, `{"model":"a\/b"}`} {
		f.Add(body, 3)
	}
	f.Fuzz(func(t *testing.T, body string, n int) {
		r := readRequest(body, len(body))
		pieces := readRequest(body, max(n, 1))
		if fmt.Sprint(r.Err(), r.Whole(), r.Model()) != fmt.Sprint(pieces.Err(), pieces.Whole(), pieces.Model()) {
			t.Fatalf("whole %v %v %q, in pieces %v %v %q", r.Err(), r.Whole(), r.Model(), pieces.Err(), pieces.Whole(), pieces.Model())
		}
		lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
		valid := jsontext.Value(body).IsValid(lenient...) && jsontext.Value(body).Kind() == '{'
		if valid && (!r.Whole() || r.Err() != nil && strings.Contains(r.Err().Error(), "no JSON object")) {
			t.Fatalf("%q was not taken: %v", body, r.Err())
		}
		if valid && r.Err() == nil {
			want := ""
			if v := gjson.Get(body, "model"); v.Type == gjson.String && len(v.Raw) < 1000 {
				want = v.Str
			}
			if r.Model() != want && len(body) < 1000 {
				t.Fatalf("%q: got the model %q, want %q", body, r.Model(), want)
			}
		}
	})
}

// However an answer is cut into pieces, it counts the same, in bounded memory.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(openaiStream), true, 3, 70)
	f.Add([]byte(anthropicStream), true, 1, 1)
	f.Add([]byte(`{"usage":{"prompt_tokens":12,"completion_tokens":3}}`), false, 9, 2)
	f.Fuzz(func(t *testing.T, answer []byte, events bool, a, b int) {
		whole, _ := count(answer, events, 50, max(len(answer), 1))
		pieces, held := count(answer, events, 50, a, b)
		if whole != pieces {
			t.Errorf("whole %+v, in pieces %+v", whole, pieces)
		}
		if held > 2*tokencount.MaxUsage {
			t.Errorf("held %d bytes", held)
		}
		if used := whole.Input + whole.Output + whole.CacheRead + whole.CacheCreation; used > 4<<32+uint64(len(answer))+50 {
			t.Errorf("%d tokens in %d bytes", used, len(answer))
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	answer := []byte(strings.Repeat(`data: {"id":"1","choices":[{"delta":{"content":"word "}}]}`+"\n\n", 1000) + openaiStream)
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		count(answer, true, 1, 4096)
	}
}
