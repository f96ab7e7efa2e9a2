package child

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
)

// Whatever is emitted, every line is one frame within the limit.
func TestNothingEmittedExceedsTheLimit(t *testing.T) {
	long := strings.Repeat("\x00é🎉", 200_000)
	quoted, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		emit func(w *emitter)
		want string // a path that must be there
	}{
		{"a tool's input", func(w *emitter) {
			w.update(protocol.ToolcallInput{ToolID: "c", Input: jsontext.Value(`{"x":` + string(quoted) + `}`)})
		}, "event.input.truncated"},
		{"a tool's result", func(w *emitter) { w.update(protocol.ToolcallResult{ToolID: "c", Result: long}) }, "event.truncated"},
		{"thinking", func(w *emitter) { w.update(protocol.ThinkingDelta{Delta: long}) }, "event.delta"},
		{"an input delta", func(w *emitter) { w.update(protocol.ToolcallInputDelta{ToolID: "c", Delta: long}) }, "event.delta"},
		{"an error", func(w *emitter) { w.send(commandError("1", errors.New(long))) }, "message"},
		{"an error that is not UTF-8", func(w *emitter) { w.send(commandError("1", errors.New("\xff"))) }, "message"},
		{"a response", func(w *emitter) {
			w.send(protocol.SuccessResponse(protocol.NewSession{ID: "1"}, protocol.NewSessionAnswer{SessionID: long}))
		}, "error"},
	}
	for _, tt := range tests {
		for _, ascii := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				var out bytes.Buffer
				tt.emit(newEmitter(&out, ascii, "/s.jsonl", func(err error) { t.Error(err) }))
				if out.Len() == 0 {
					t.Fatal("nothing is written")
				}
				for line := range strings.Lines(out.String()) {
					if len(line) > frame.MaxWritten {
						t.Errorf("a frame of %d bytes", len(line))
					}
					if !gjson.Valid(line) || !gjson.Get(line, tt.want).Exists() {
						t.Errorf("no member %s in %.200s", tt.want, line)
					}
				}
			})
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("plain")
	f.Add("é🎉\u2028\x00\"\\")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // JSON holds no such string
		}
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		escaped := escape(quoted)
		for _, b := range escaped {
			if b >= utf8.RuneSelf {
				t.Fatalf("%q is not ASCII", escaped)
			}
		}
		var again string
		if err := json.Unmarshal(escaped, &again); err != nil || again != text {
			t.Fatalf("got %q, %v, want %q", again, err, text)
		}
	})
}
