package mcp_test

import (
	"bytes"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/tidwall/gjson"

	"nexus.internal/child/mcp"
	"nexus.internal/protocol/strict"
)

// FuzzMessages reads any output of a program: it ends, and what is passed on are
// no more messages than there are lines, each of which can be written again.
func FuzzMessages(f *testing.F) {
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\nhello\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n"))
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"roots/list\"}\n[]\n{}"))
	f.Fuzz(func(t *testing.T, stdout []byte) {
		messages, err := mcp.Messages(stdout)
		if err == nil {
			t.Error("there is no end")
		}
		if lines := bytes.Count(stdout, []byte("\n")); len(messages) > lines {
			t.Errorf("%d messages of %d lines", len(messages), lines)
		}
		for _, m := range messages {
			if _, err := jsonrpc.EncodeMessage(m); err != nil {
				t.Errorf("%+v: %v", m, err)
			}
		}
	})
}

// FuzzEvents filters any stream of events: what is left is a part of it, in
// whole events, and their data is JSON.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1}\n\n: ping\r\n\r\ndata: {\"method\":\"x\"}\n\n"))
	f.Add([]byte("data: 1\n\ndata: {]\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		out, _ := mcp.Filter(stream)
		rest := stream
		if bytes.Contains(out, []byte("its data is no base64]")) { // it was sanitized
			rest = out
		}
		for line := range bytes.Lines(out) {
			i := bytes.Index(rest, line)
			if i < 0 {
				t.Fatalf("%q is not in %q", out, stream)
			}
			rest = rest[i+len(line):]
		}
		if len(out) > 0 && !bytes.HasSuffix(bytes.ReplaceAll(out, []byte("\r"), nil), []byte("\n")) {
			t.Errorf("%q ends within an event", out)
		}
		var data []byte
		for line := range bytes.Lines(out) {
			line = bytes.TrimRight(line, "\r\n")
			if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(append(data, value...), '\n')
			}
			if len(line) == 0 {
				if len(bytes.TrimSpace(data)) > 0 && strict.Valid(data) != nil {
					t.Errorf("passed on %q", data)
				}
				data = nil
			}
		}
	})
}

// FuzzMend mends any message: it stays one, with what was sound in it, and is
// sanitized then.
func FuzzMend(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{"content":[{"type":"text","text":"a"},{"type":"image","data":"?","mimeType":"image/png"},{"type":"audio","data":5}]}}`))
	f.Add([]byte(`{"id":1, "result": {"contents" : [ {"uri":"a","blob":"AA="} , {"uri":"b","blob":"AAA="}]}}`))
	f.Add([]byte(`{"id":1,"result":{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a","blob":[]}}}]}}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		if strict.Valid(message) != nil {
			return
		}
		sanitized, err := mcp.Sanitize(message)
		if err != nil || sanitized == nil {
			return
		}
		if err := strict.Valid(sanitized); err != nil {
			t.Fatalf("%s became %s: %v", message, sanitized, err)
		}
		if again, err := mcp.Sanitize(sanitized); again != nil || err != nil {
			t.Errorf("%s became %s and then %s, %v", message, sanitized, again, err)
		}
		for _, list := range []string{"content", "contents", "messages"} {
			before, after := gjson.GetBytes(message, "result."+list+".#"), gjson.GetBytes(sanitized, "result."+list+".#")
			if before.Int() != after.Int() {
				t.Errorf("%s became %s: %s has other entries", message, sanitized, list)
			}
		}
	})
}
