package bridge_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"nexus.internal/bridge"
	"nexus.internal/protocol/jsonrpc"
)

// What net/http refuses by itself looks like any other answer, says what is
// wrong, and is the last thing on its connection: what came before a time-out
// must not be answered as a request too.
func TestEarlyRefusals(t *testing.T) {
	t.Parallel() // some of it is waiting
	r := rigged(t, nil)
	hasty := rigged(t, func(_ *rig, o *bridge.Options) { o.ReadTimeout = time.Second }) // from the connection's begin: the machine may be busy
	for _, test := range []struct {
		name, sent string
		status     int
		code       jsonrpc.Code
		say        string
	}{
		{"silence in the request line", "POS", 408, jsonrpc.CodeInvalidRequest, "in time"},
		{"silence in the headers", "POST /rpc HTTP/1.1\r\nHost: x", 408, jsonrpc.CodeInvalidRequest, "in time"},
		{"no HTTP", "hello\r\n\r\n", 400, jsonrpc.CodeInvalidRequest, "not well-formed"},
		{"no Host", "POST /rpc HTTP/1.1\r\n\r\n", 403, jsonrpc.CodeNotAuthenticated, "Host"},
		{"a long header", "POST /rpc HTTP/1.1\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", 431, jsonrpc.CodeInvalidRequest, "more than 65536 bytes"},
		{"a coding", r.head("POST /rpc HTTP/1.1") + "Transfer-Encoding: gzip\r\n\r\n", 501, jsonrpc.CodeInvalidRequest, "Transfer-Encoding"},
		{"an expectation", r.head("POST /rpc HTTP/1.1") + "Expect: foo\r\n\r\n", 417, jsonrpc.CodeInvalidRequest, "Expect"},
		{"an expectation in HTTP/1.0", r.head("POST /rpc HTTP/1.0") + "Expect: foo\r\n\r\n", 417, jsonrpc.CodeInvalidRequest, "Expect"},
		{"a version", r.head("POST /rpc HTTP/3.0") + "\r\n", 505, jsonrpc.CodeInvalidRequest, "HTTP/1.0 and 1.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := r
			if test.status == http.StatusRequestTimeout {
				server = hasty
			}
			conn := server.dial()
			if _, err := io.WriteString(conn, test.sent); err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(bytes.NewReader(all))
			response, body := readResponse(t, in)
			if response.StatusCode != test.status || !response.Close {
				t.Errorf("got HTTP %d, close %v, want %d and the end", response.StatusCode, response.Close, test.status)
			}
			for name, want := range map[string]string{"Cache-Control": "no-store", "Content-Type": "application/json"} {
				if got := response.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if response.Header.Get("X-Request-Id") == "" {
				t.Error("no X-Request-Id")
			}
			wantWhole(t, body, test.code)
			if !strings.Contains(body, test.say) {
				t.Errorf("got %s, want %q in it", body, test.say)
			}
			if more, err := http.ReadResponse(in, nil); err == nil {
				more.Body.Close()
				t.Errorf("a second answer: HTTP %d", more.StatusCode)
			}
		})
	}
}
