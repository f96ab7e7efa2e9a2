package forward_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/iotest"
	"time"

	"nexus.internal/bridge/forward"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// taken is what a stream was sent.
type taken struct{ bytes.Buffer }

func (t *taken) Send(events []byte) error {
	t.Write(events)
	return nil
}

// sent is a stream of events, and its response.
func sent(events ...string) (stream, response []byte) {
	for _, e := range events {
		stream = rpc.AppendEvent(stream, "", "stream_data", []byte(e))
	}
	answer := &taken{}
	rpc.NewStream(answer, time.Minute).Answer(jsonrpc.Response{ID: jsonrpc.NumberID(1), Result: []byte(`{"content":"event: response"}`)})
	return append(stream, answer.Bytes()...), stream
}

// What comes before the response is passed on byte for byte, however it arrives. A stream that ends before that is broken.
func TestRelay(t *testing.T) {
	stream, events := sent(`{"chunk":"a"}`, `{"chunk":"event: response"}`, `{"chunk":""}`)
	stream = append([]byte(": heartbeat\n\n"), stream...)
	events = append([]byte(": heartbeat\n\n"), events...)
	for name, from := range map[string]io.Reader{
		"at once": bytes.NewReader(stream), "a byte at a time": iotest.OneByteReader(bytes.NewReader(stream)), "in halves": iotest.HalfReader(bytes.NewReader(stream)),
	} {
		var out taken
		response, err := forward.Relay(io.NopCloser(from), rpc.NewStream(&out, time.Minute))
		if err != nil || out.String() != string(events) {
			t.Errorf("%s: %q, %v; want %q", name, out.String(), err, events)
		}
		if answer, err := jsonrpc.DecodeResponse(response); err != nil || string(answer.Result) != `{"content":"event: response"}` {
			t.Errorf("%s: the response %s, %v", name, response, err)
		}
	}
	if _, err := forward.Relay(io.NopCloser(bytes.NewReader(events)), rpc.NewStream(&taken{}, time.Minute)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("without a response: %v", err)
	}
}

// Whatever another machine writes, a client gets whole events alone, in order and none of them twice.
func FuzzRelay(f *testing.F) {
	stream, _ := sent(`{"chunk":"a"}`, `{"chunk":"b"}`)
	f.Add(stream)
	f.Add([]byte("\n\n\n\nevent: response\ndata: \n\n"))
	f.Add([]byte("event: response\ndata: {}"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var out taken
		response, err := forward.Relay(io.NopCloser(iotest.HalfReader(bytes.NewReader(stream))), rpc.NewStream(&out, time.Minute))
		if !bytes.HasPrefix(stream, out.Bytes()) {
			t.Errorf("%q is passed on of %q", out.Bytes(), stream)
		}
		if out.Len() > 0 && !bytes.HasSuffix(out.Bytes(), []byte("\n\n")) {
			t.Errorf("part of an event: %q", out.Bytes())
		}
		if err == nil && !bytes.HasPrefix(stream[out.Len():], []byte("event: response\ndata: ")) {
			t.Errorf("the response %q of %q", response, stream)
		}
	})
}

// A request that does not say for whom it is, is nobody's.
func TestFrom(t *testing.T) {
	for _, test := range []struct {
		name, machine, principal string
		ok                       bool
	}{
		{"a key", "a", `{"key_id":"k","scope":"read"}`, true},
		{"an agent", "a", `{"caller":{"AgentID":"x"},"visitor":{}}`, true},
		{"no machine", "", `{"key_id":"k"}`, false},
		{"nobody", "a", `{}`, false},
		{"an agent without what it may do", "a", `{"caller":{"AgentID":"x"}}`, false},
		{"no JSON", "a", `key`, false},
	} {
		h := http.Header{}
		h.Set("X-Nexus-Machine", test.machine)
		h.Set("X-Nexus-Principal", base64.StdEncoding.EncodeToString([]byte(test.principal)))
		if _, by, err := forward.From(h); (err == nil) != test.ok {
			t.Errorf("%s: %+v, %v", test.name, by, err)
		}
	}
	if _, _, err := forward.From(http.Header{}); err == nil {
		t.Error("no header is somebody's")
	}
}
