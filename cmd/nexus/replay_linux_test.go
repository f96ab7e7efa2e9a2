package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/auth"
)

// A signed request that somebody has recorded is not carried out again by the next
// server, whichever way the last one ended: a key for one agent is good there too.
func TestAttackReplayedToTheNextServer(t *testing.T) {
	t.Parallel()
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(end.String(), func(t *testing.T) {
			s := newLive(t, nil)
			s.call("/", "create_agent", `{"agent_id":"a"}`)
			key, err := auth.Parse(gjson.Get(s.call("/", "create_key", `{"scope":"agent","agent_id":"a"}`), "result.key").Str)
			if err != nil {
				t.Fatal(err)
			}
			post := func(body string) (status int, answer string) {
				t.Helper()
				status, answer, err := request(http.MethodPost, s.url+"/agent/a", http.Header{"Authorization": {"Bearer " + key.Reveal()}}, body)
				if err != nil {
					t.Fatal(err)
				}
				return status, answer
			}
			signed := func(id int) string {
				at := time.Now().Add(time.Minute).Unix() // also of a clock that goes ahead
				const params = `{"content":"echo once"}`
				signature := key.Sign(fmt.Sprintf("nexus-request-v1\n%d\n/agent/a\n%d\nsend\n%s", at, id, params))
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"send","params":%s,"auth":{"timestamp":%d,"signature":%q}}`, id, params, at, signature)
			}
			recorded := signed(1)
			if status, answer := post(recorded); status != 200 || !gjson.Get(answer, "result.content").Exists() {
				t.Fatalf("HTTP %d %s", status, answer)
			}
			for range 2 { // the second of them learns it from the first
				if end == syscall.SIGTERM {
					s.end()
				} else {
					if err := s.cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
					_ = s.cmd.Wait()
				}
				s.again()
				if status, answer := post(recorded); status != 403 || !strings.Contains(answer, "used before") {
					t.Errorf("replayed: HTTP %d %s", status, answer)
				}
			}
			if status, answer := post(signed(2)); status != 200 || !gjson.Get(answer, "result.content").Exists() {
				t.Errorf("a new one: HTTP %d %s", status, answer)
			}
			if messages := s.call("/agent/a", "get_messages", `{}`); strings.Count(messages, `"role":"user"`) != 2 {
				t.Errorf("it was sent again: %s", messages)
			}
			s.end()
		})
	}
}
