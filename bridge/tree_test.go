package bridge_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// An agent has at most as many agents below it as its limits allow, however many ask
// for one at once and however deep they are; a saved one counts when it comes back.
func TestAttackManyAgents(t *testing.T) {
	const most = 6
	many := func(c *supervisortest.Child, p protocol.Prompt) { // one call for each of N
		n, _ := strconv.Atoi(strings.TrimPrefix(p.Message, "make "))
		if n == 0 {
			calls(c, p)
			return
		}
		var made atomic.Int32
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if r, ok := c.Host(p, "create_agent", fmt.Sprintf(`{"agent_id":"%s-%d-%d","preset":"trusted"}`, c.Spec().ID, n, i)); ok && r.Error == nil {
					made.Add(1)
				} else if ok && !strings.Contains(r.Error.Message, "as many as its limits.agents allows") {
					t.Errorf("refused with %+v", r.Error)
				}
			})
		}
		all.Wait()
		c.Say(strconv.Itoa(int(made.Load())))
		c.Finish(p, "")
	}
	f := &family{rig: rigged(t, func(r *rig, o *bridge.Options) {
		plays(many)(r, o)
		o.Runtime = withSpec{o.Runtime, func(s *supervisor.Spec) error {
			limit := most
			if s.Labels.Parent != "" {
				limit = 4 // of each below
			}
			s.MaxAgents = new(uint64(limit))
			return nil
		}}
	})}
	f.create("trusted")
	f.create("trusted-other") // no part of it
	made := func(agent string, n int) string {
		r, err := client.Do(f.ctx(), f.client, agent, api.Send, api.SendParams{Content: fmt.Sprintf("make %d", n)})
		if err != nil {
			t.Fatal(err)
		}
		return protocol.Value(r.Content)
	}
	if got := made("trusted", 2); got != "2" {
		t.Fatalf("made %s of 2", got)
	}
	if got := made("trusted-2-0", 30); got != "3" { // its own bound
		t.Errorf("the one below made %s, want 3", got)
	}
	if got := made("trusted-2-1", 30); got != "0" { // the bound of the one above
		t.Errorf("the other one below made %s, want 0", got)
	}
	if got := made("trusted", 30); got != "0" {
		t.Errorf("the first one made %s more, want 0", got)
	}
	if n := len(f.sup.Agents()); n != most+1 {
		t.Errorf("%d agents run, want %d", n, most+1)
	}
	// A person is told so, too; and with room again one more is made.
	_, body := f.post("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"x","parent_agent_id":"trusted"}}`)
	if !strings.Contains(body, `"TOO_MANY_AGENTS"`) {
		t.Error(body)
	}
	for _, info := range f.sup.Agents() {
		if strings.HasPrefix(info.ID, "trusted-2-0-") {
			if _, err := client.Do(f.ctx(), f.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: info.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := made("trusted-2-1", 30); got != "3" {
		t.Errorf("made %s with room for 3", got)
	}
}
