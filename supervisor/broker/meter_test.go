package broker_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/supervisor/broker"
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

func TestMeter(t *testing.T) {
	tests := []struct {
		name, answer string
		events       bool
		want         broker.Usage
	}{
		{"OpenAI's stream", openaiStream, true, broker.Usage{Input: 20, CacheRead: 100, Output: 7}},
		{"Anthropic's stream", anthropicStream, true, broker.Usage{Input: 25, CacheRead: 300, CacheCreation: 40, Output: 15}},
		{
			"OpenAI's answer", `{"choices":[{"message":{"content":"x","usage":{"prompt_tokens":1}}}],"usage":{"prompt_tokens":12,"completion_tokens":3}}`,
			false,
			broker.Usage{Input: 12, Output: 3},
		},
		{
			"Anthropic's answer", ` {"content":[{"type":"text","text":"\"usage\":{"}],"usage" : {"input_tokens":5,"output_tokens":6,"cache_creation":{"ephemeral_5m_input_tokens":2},"cache_creation_input_tokens":2} }`,
			false,
			broker.Usage{Input: 5, CacheCreation: 2, Output: 6},
		},
		{
			"OpenAI's responses", "data: {\"type\":\"response.completed\",\"response\":{\"output\":[],\"usage\":{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":10},\"output_tokens\":4}}}\n\n",
			true,
			broker.Usage{Input: 20, CacheRead: 10, Output: 4},
		},
		{
			"sums in each event", "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":9}}\n\n",
			true,
			broker.Usage{Input: 5, Output: 9},
		},
		{"escapes in a usage object", `{"usage":{"note":"\\u007d \"}\" \\\\","prompt_tokens":12,"completion_tokens":3}}`, false, broker.Usage{Input: 12, Output: 3}},
		{"cut off before a count", openaiStream[:150], true, broker.Usage{Input: 50, Output: 2, Estimated: 1}},
		{"cut off after its input", anthropicStream[:strings.Index(anthropicStream, "event: message_delta")], true, broker.Usage{Input: 25, CacheRead: 300, CacheCreation: 40, Output: 4, Estimated: 1}},
		{"an event that broke off", "data: {\"choices\":[{\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":9}}\n\n", true, broker.Usage{Input: 5, Output: 9}},
		{"nothing", "", false, broker.Usage{Input: 50, Estimated: 1}},
		{"no JSON", "]]}}{\"usage\":{]\"", false, broker.Usage{Input: 50, Estimated: 1}},
		{"counts that were made up", `{"usage":{"prompt_tokens":-5,"completion_tokens":1e300}}`, false, broker.Usage{Input: 50, Output: 1 << 32, Estimated: 1}},
		{"a usage object without an end", `{"usage":{"x":"` + strings.Repeat("y", 1<<16) + `","prompt_tokens":1}}`, false, broker.Usage{Input: 50, Estimated: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for n := 1; n <= max(min(len(tt.answer), 1000), 1); n++ { // split at every byte
				got, held := broker.Meter([]byte(tt.answer), tt.events, 50, n, max(len(tt.answer)-n, 1))
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Fatalf("split at %d (-want +got):\n%s", n, diff)
				}
				if held > 2*broker.MaxUsage {
					t.Fatalf("held %d bytes", held)
				}
			}
		})
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
		if got := broker.RequestTokens([]byte(tt.body)); got < tt.min || got > tt.max {
			t.Errorf("%s: got %d tokens, want %d to %d", name, got, tt.min, tt.max)
		}
	}
}

// However an answer is cut into pieces, it counts the same, in bounded memory.
func FuzzMeter(f *testing.F) {
	f.Add([]byte(openaiStream), true, 3, 70)
	f.Add([]byte(anthropicStream), true, 1, 1)
	f.Add([]byte(`{"usage":{"prompt_tokens":12,"completion_tokens":3}}`), false, 9, 2)
	f.Fuzz(func(t *testing.T, answer []byte, events bool, a, b int) {
		whole, _ := broker.Meter(answer, events, 50, max(len(answer), 1))
		pieces, held := broker.Meter(answer, events, 50, a, b)
		if whole != pieces {
			t.Errorf("whole %+v, in pieces %+v", whole, pieces)
		}
		if held > 2*broker.MaxUsage {
			t.Errorf("held %d bytes", held)
		}
		if used := whole.Tokens(); used > 4<<32+uint64(len(answer))+50 {
			t.Errorf("%d tokens in %d bytes", used, len(answer))
		}
	})
}
