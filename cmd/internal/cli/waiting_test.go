package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// shows is a writer that says when something was written to it.
type shows struct {
	mu   sync.Mutex // guards what follows
	text strings.Builder
	want map[string]chan struct{} // closed once the text holds the name
}

func (s *shows) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	for part, seen := range s.want {
		if strings.Contains(s.text.String(), part) {
			close(seen)
			delete(s.want, part)
		}
	}
	return len(p), nil
}

// A send that waits for somebody's yes says so while it waits, with the call and the way
// to answer: for a call that waits already, of another turn perhaps, and for one to come.
func TestSendTellsWhatWaits(t *testing.T) {
	request := func(id, command string) string {
		return fmt.Sprintf(`{"type":"permission_request","request_id":%q,"turn_id":"t","tool_id":"c","tool_name":"shell","action":"execute",`+
			`"summary":"s","reason":"it runs a program","input":{"command":%q},"paths":[],"command":%q,"deadline":"later","decisions":["deny"]}`, id, command, command)
	}
	for _, flags := range [][]string{nil, {"--json"}} {
		errors := &shows{want: map[string]chan struct{}{"deny a r-1": make(chan struct{}), "deny a r-2": make(chan struct{})}}
		first, second := errors.want["deny a r-1"], errors.want["deny a r-2"]
		seen := func(what chan struct{}) {
			select {
			case <-what:
			case <-time.After(30 * time.Second): // bounds a failure
				t.Error("it is not told")
			}
		}
		serve := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/events" {
				if got := r.URL.Query(); got.Get("agents") != "a" || got.Get("types") != "permission_request" {
					t.Errorf("asked for %v", got)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "id: *:1\nevent: open\ndata: {\"type\":\"open\"}\n\n")
				_ = http.NewResponseController(w).Flush()
				seen(first)
				fmt.Fprintf(w, "id: *:2\nevent: permission_request\ndata: {\"agent_id\":\"a\",\"seq\":9,\"event\":%s}\n\n", request("r-2", "make"))
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			body, _ := io.ReadAll(r.Body)
			if gjson.GetBytes(body, "method").Str == "get_permissions" {
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"permission_level":"trusted","preset":"trusted","pending":[%s]}}`, request("r-1", "ls"))
				return
			}
			seen(second) // the turn goes on once somebody has answered
			if r.Header.Get("Accept") == "application/json" {
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"request_id":"r","content":"done"}}`)
				return
			}
			streaming(`"content":"done"`, "done")(w, r)
		}
		got := runTo(t, serve, nil, errors, append(flags, "send", "a", "x")...)
		said := errors.text.String()
		for _, want := range []string{
			"nexus-rpc: a waits for an approval:\n  r-1 a: shell {\"command\":\"ls\"}\n", "r-2 a: shell {\"command\":\"make\"}\n",
			"  it runs a program; without an answer denied at later\n", " allow a r-1, or nexus-rpc --port ",
		} {
			if !strings.Contains(said, want) || got.status != 0 || !strings.Contains(got.stdout, "done") {
				t.Errorf("%v: got %d %q, and no %q in\n%s", flags, got.status, got.stdout, want, said)
			}
		}
	}
}

// A turn that came to nothing is no success, and says why; nothing of it looks like an
// answer.
func TestSendWithoutAnAnswer(t *testing.T) {
	for _, test := range []struct {
		name, result string
		pieces       []string
		want         outcome
	}{
		{"halted", `"content":"so far","stop_reason":"max_iterations"`, []string{"so far"}, outcome{1, "so far\n", "halted at its limit of model calls (max_iterations)"}},
		{"halted without a word", `"content":"","stop_reason":"max_iterations"`, nil, outcome{1, "", "halted at its limit of model calls (max_iterations)"}},
		{"cut off", `"content":"so far","stop_reason":"max_tokens"`, []string{"so far"}, outcome{1, "so far\n", "cut off at the model's limit of tokens (max_tokens)"}},
		{"cut off before a word", `"content":"","stop_reason":"max_tokens"`, nil, outcome{1, "", "cut off at the model's limit of tokens (max_tokens)"}},
		{"filtered", `"content":"so far","stop_reason":"content_filter"`, []string{"so far"}, outcome{1, "so far\n", "refused or filtered the rest (content_filter)"}},
		{"without a word", `"content":"","stop_reason":"completed"`, nil, outcome{1, "", "the agent ended the turn without a word"}},
		{"an empty line", `"content":"\n\n","stop_reason":"completed"`, []string{"\n", "\n"}, outcome{1, "", "the agent ended the turn without a word"}},
		{"empty lines before a word", `"content":"\n\nyes","stop_reason":"completed"`, []string{"\n", "\n", "yes"}, outcome{0, "\n\nyes\n", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, streaming(test.result, test.pieces...), nil, "send", "a", "hello")
			if got.status != test.want.status || got.stdout != test.want.stdout || !strings.Contains(got.stderr, test.want.stderr) || strings.Count(got.stderr, "\n") > 1 {
				t.Errorf("got %d %q %q", got.status, got.stdout, got.stderr)
			}
			plain := func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"request_id":"r",%s}}`, test.result)
			}
			if got := run(t, plain, nil, "--json", "send", "a", "hello"); got.status != test.want.status || !strings.Contains(got.stderr, test.want.stderr) {
				t.Errorf("--json: got %d %q %q", got.status, got.stdout, got.stderr)
			}
		})
	}
}
