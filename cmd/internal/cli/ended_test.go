package cli_test

import (
	"net/http"
	"strings"
	"testing"
)

// ends is a server that ends with the first request for that method, and answers nothing; before
// has what it answers to others.
func ends(method, before string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 1<<10)
		n, _ := r.Body.Read(body)
		if strings.Contains(string(body[:n]), `"`+method+`"`) {
			r.Context().Value(http.ServerContextKey).(*http.Server).Close()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(before))
	}
}

// TestServerEnds is about a server that ends while it is called: it has ended, as shutdown asks
// for, and else it is said how this very server is started again.
func TestServerEnds(t *testing.T) {
	agents := `{"jsonrpc":"2.0","id":1,"result":{"agents":[],"count":0}}`
	if got := run(t, ends("shutdown_server", agents), nil, "shutdown"); got.status != 0 || got.stderr != "" {
		t.Errorf("shutdown: %+v", got)
	}
	for line, want := range map[string]string{
		"list":                             "",
		"send a hi --request-id q1":        "; the same send with --request-id q1 tells how the turn ended",
		"messages a --home /no/where/it's": " --home '/no/where/it'\\''s'",
	} {
		method := map[string]string{"list": "list_agents", "send": "send", "messages": "get_messages"}[strings.Fields(line)[0]]
		got := run(t, ends(method, agents), nil, strings.Fields(line)...)
		if got.status != 3 || !strings.HasPrefix(got.stderr, "nexus-rpc: the server has ended: start it again with nexus serve ") || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v", line, got)
		}
	}
	got := run(t, ends("send", agents), nil, "--server", "SERVER", "send", "a", "hi", "--request-id", "q1")
	if got.status != 3 || !strings.Contains(got.stderr, "connection refused; the same send with --request-id q1 tells how the turn ended") {
		t.Errorf("one of another machine: %+v", got)
	}
}
