package bridge_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge"
	"nexus.internal/protocol"
	"nexus.internal/supervisor/supervisortest"
)

// The id that a client gives its request is kept, where it can stand in a log and in a
// header.
func TestRequestID(t *testing.T) {
	r := rigged(t, nil)
	for _, tt := range []struct {
		name, id string
		kept     bool
	}{
		{"a UUID", "0af76519-16cd-43dd-8448-eb211c80319c", true},
		{"other characters", "a/b:c_d.e~f+g=h@i", true},
		{"128 bytes", strings.Repeat("a", 128), true},
		{"129 bytes", strings.Repeat("a", 129), false},
		{"nothing", "", false},
		{"a space", "a b", false},
		{"a quote", `a"b`, false},
		{"no ASCII", "é", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response, _ := r.post("/", list, "X-Request-Id", tt.id)
			got := response.Header.Get("X-Request-Id")
			if (got == tt.id) != tt.kept || got == "" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A trace goes with its request to the agent, and from that to the agents that it asks.
func TestTraceReachesChildren(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seen := make(chan string, 4)
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			seen <- p.Message + " " + p.Traceparent
			if p.Message == "ask" {
				c.Host(p, "send", `{"agent_id":"b","content":"asked"}`)
			}
			c.Finish(p, "done")
		})(r, o)
	})
	r.create("a")
	r.create("b")
	const send = `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"ask"}}`
	r.post("/agent/a", send, "Traceparent", parent)
	r.post("/agent/b", strings.Replace(send, "ask", "none", 1))
	r.post("/agent/b", strings.Replace(send, "ask", "bad", 1), "Traceparent", strings.ToUpper(parent))
	var got []string
	for range 4 {
		got = append(got, <-seen)
	}
	if diff := cmp.Diff([]string{"ask " + parent, "asked " + parent, "none ", "bad "}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
