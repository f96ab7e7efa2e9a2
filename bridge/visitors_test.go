package bridge_test

import (
	"strings"
	"testing"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// said has an agent make a host call and is what it said.
func said(r *rig, agent, call string) string {
	r.t.Helper()
	sent, err := client.Do(r.ctx(), r.client, agent, api.Send, api.SendParams{Content: call})
	if err != nil {
		r.t.Fatalf("%s of %s: %v", call, agent, err)
	}
	return protocol.Value(sent.Content)
}

// An agent asks for agents of another machine as for those of its own: to send to one that may do more than itself is refused, as is one
// that does not run, or that it did not create.
func TestAgentsAskElsewhere(t *testing.T) {
	c, all := clusterOf(t, plays(calls), "a", "b")
	a, b := all[0], all[1]
	for _, id := range []string{"trusted", "box"} {
		a.create(id)
	}
	for _, id := range []string{"trusted-far", "far", "stopped"} {
		b.create(id)
	}
	if _, err := client.Do(b.ctx(), b.client, "stopped", api.Shutdown, api.None{}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ agent, call, want string }{
		{"box", `send {"agent_id":"far","content":"hello"}`, `"content":"hello"`},
		{"trusted", `send {"agent_id":"far","content":"hello"}`, `"content":"hello"`},
		{"trusted", `send {"agent_id":"trusted-far","content":"hello"}`, `"content":"hello"`},
		{"box", `send {"agent_id":"trusted-far","content":"hello"}`, `an agent cannot send to one that may do more than itself: trusted-far may and box may not`},
		{"box", `get_model {"agent_id":"trusted-far"}`, `"model":"echo"`},
		{"trusted", `get_messages {"agent_id":"far"}`, `trusted did not create far`},
		{"trusted", `send {"agent_id":"far","content":"hello","when_busy":"steer"}`, `it cannot steer it`},
		{"trusted", `send {"agent_id":"stopped","content":"hello"}`, `stopped does not run and trusted did not create it`},
		{"trusted", `destroy_agent {"agent_id":"far"}`, `the machine b has far: an agent can ask for destroy_agent of agents on its own machine alone`},
		{"trusted", `shutdown {"agent_id":"far"}`, `an agent cannot ask for shutdown`},
		{"trusted", `create_agent {"agent_id":"new","place":{"node":"b"}}`, `an agent creates agents on its own machine`},
	} {
		if got := said(a, test.agent, test.call); !strings.Contains(got, test.want) {
			t.Errorf("%s of %s: %s, want %s", test.call, test.agent, got, test.want)
		}
	}
	if got := said(a, "trusted", `create_agent {"agent_id":"new"}`); !strings.Contains(got, `"agent_id":"new"`) || c.owner("new") != "a" {
		t.Errorf("a new one: %s, of %q", got, c.owner("new"))
	}
	inLog(t, b, `"key":"agent box"`)
	c.cut("b")
	if got := said(a, "box", `send {"agent_id":"far","content":"hello"}`); !strings.Contains(got, "the machine b, which has the agent, is not reached") {
		t.Errorf("a machine that is not reached: %s", got)
	}
}

// Agents of three machines that would wait for each other in a circle are refused that.
func TestCircleElsewhere(t *testing.T) {
	_, all := clusterOf(t, plays(calls), "a", "b", "c")
	for i, id := range []string{"x", "y", "z"} {
		all[i].create(id)
	}
	const circle = `send {"agent_id":"y","content":"send {\"agent_id\":\"z\",\"content\":\"send {\\\"agent_id\\\":\\\"x\\\",\\\"content\\\":\\\"hello\\\"}\"}"}`
	if got := said(all[0], "x", circle); !strings.Contains(got, "would wait for itself: z → x → y → z") {
		t.Errorf("a circle: %s", got)
	}
	if got := said(all[0], "x", `send {"agent_id":"y","content":"send {\"agent_id\":\"z\",\"content\":\"hello\"}"}`); !strings.Contains(got, "hello") {
		t.Errorf("without one: %s", got)
	}
	for i, r := range all {
		if left := r.sup.WaitsFor([]string{"x", "y", "z"}[i]); left != nil {
			t.Errorf("waits that are over are left: %v", left)
		}
	}
}

// A turn that asked an agent elsewhere and is cancelled takes that one's with it.
func TestCallerElsewhereIsCancelled(t *testing.T) {
	_, all := clusterOf(t, func(r *rig, o *bridge.Options) { plays(calls)(r, o) }, "a", "b")
	a, b := all[0], all[1]
	a.create("x")
	b.create("far")
	sent := a.sendAsync("x", api.SendParams{Content: `send {"agent_id":"far","content":"wait","request_id":"r"}`, RequestID: new("asks")})
	b.underWay("agent", 1)
	for {
		if far, err := b.sup.Agent("far"); err != nil || far.Info().State == supervisor.Busy {
			break
		}
	}
	if _, err := client.Do(a.ctx(), a.client, "x", api.Cancel, api.CancelParams{RequestID: "asks"}); err != nil {
		t.Fatal(err)
	}
	a.await(sent)
	got, err := client.Do(b.ctx(), b.client, "far", api.Send, api.SendParams{Content: "wait", RequestID: new("r")})
	if err != nil || !got.Cancelled {
		t.Errorf("the turn of far: %+v, %v", got, err)
	}
}
