package mcp_test

import (
	"bytes"
	"cmp"
	"io"
	"testing"

	"nexus.internal/child/mcp"
)

// FuzzReceive reads any output of a program: it ends, with the reason, and no more is to be sent
// than there are lines.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\nhello\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n"))
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"roots/list\"}\n[]\n{}"))
	f.Fuzz(func(t *testing.T, stdout []byte) {
		answered, outbox, reason := mcp.Receive(stdout)
		if reason == nil {
			t.Error("there is no end")
		}
		if lines := bytes.Count(stdout, []byte("\n")); outbox > lines || answered && lines == 0 {
			t.Errorf("%d messages to be sent, answer %t, of %d lines", outbox, answered, lines)
		}
	})
}

// TestReceive tells an answer from all that is none.
func TestReceive(t *testing.T) {
	const noMessage = "it sent what is no message of JSON-RPC 2.0"
	for _, tc := range []struct {
		line     string
		answered bool
		outbox   int
		reason   string // "" is its end
	}{
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, true, 0, ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, true, 0, ""},
		{`{"jsonrpc":"2.0","id":"1","result":{}}`, false, 0, ""},
		{`{"jsonrpc":"2.0","id":1.0,"result":{}}`, true, 0, ""},
		{`{"jsonrpc":"2.0","id":1.5,"result":{}}`, false, 0, ""},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\xff\"}}", true, 0, ""},
		{`{"jsonrpc":"2.0","id":"a","result":{}}`, false, 0, ""},
		{`{"jsonrpc":"2.0","id":2,"result":{}}`, false, 0, ""},
		{`{"jsonrpc":"2.0","id":1}`, false, 0, noMessage + ": it has neither method nor result nor error"},
		{`{"id":1,"result":{}}`, false, 0, noMessage + `: jsonrpc is not "2.0"`},
		{`{"id":2,"result":{}}`, false, 0, ""},
		{`[{"jsonrpc":"2.0","id":1,"result":{}}]`, false, 0, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, false, 1, ""},
		{`{"jsonrpc":"2.0","id":null,"method":"ping","params":{}}`, false, 1, ""},
		{`{"jsonrpc":"2.0","method":"ping"}`, false, 0, ""},
	} {
		answered, outbox, reason := mcp.Receive([]byte(tc.line + "\n"))
		if answered != tc.answered || outbox != tc.outbox || reason.Error() != cmp.Or(tc.reason, io.EOF.Error()) {
			t.Errorf("%s: answer %t, %d to be sent, ended by %v", tc.line, answered, outbox, reason)
		}
	}
}

// FuzzTexts reads any result: it has a text, or an error.
func FuzzTexts(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"a"},{"type":"image","data":"?","mimeType":"image/png"},{"type":"audio","data":5}]}`))
	f.Add([]byte(`{"contents" : [ {"uri":"a","blob":"AA="} , {"uri":"b","blob":"AAA="}]}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a","blob":[]}}}]}`))
	f.Fuzz(func(t *testing.T, result []byte) {
		texts, err := mcp.Texts(result)
		if err == nil && (texts[0] == "" || texts[1] == "" || texts[2] == "") {
			t.Errorf("%s has no text: %q", result, texts)
		}
	})
}
