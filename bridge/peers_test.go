package bridge_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// An agent gets through another one neither a path nor a tool, a mode, the network, an
// allowance, a variable or a program without walls that it has not itself, whatever the names of their presets.
func TestAttackThroughAnotherAgent(t *testing.T) {
	base := protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/data", "/site"}, BlockedPaths: []string{"/site/keys"}}
	other := func(change func(*protocol.Permissions)) protocol.Permissions {
		p := base
		change(&p)
		return p
	}
	walled := protocol.AgentProgram{Kind: "pipe", Protocol: "pipe", Command: []string{"sh"}, Sandbox: true}
	states := map[string]map[string]any{
		"me":        {"ceiling": base},
		"same":      {"ceiling": base},
		"less":      {"ceiling": other(func(p *protocol.Permissions) { p.Preset, p.AllowedPaths = "sandboxed", []string{"/site/src"} })},
		"unblocked": {"ceiling": other(func(p *protocol.Permissions) { p.BlockedPaths = nil })},
		"elsewhere": {"ceiling": other(func(p *protocol.Permissions) { p.AllowedPaths = []string{"/etc"} })},
		"unasked": {"ceiling": other(func(p *protocol.Permissions) {
			p.Tools = map[string]protocol.ToolRule{"shell": {Mode: "allow"}}
		})},
		"free":    {"ceiling": other(func(p *protocol.Permissions) { p.Preset = "yolo" })},
		"allowed": {"ceiling": base, "allowances": []protocol.Allowance{{Tool: "shell", Action: "execute", Dir: "/site", Programs: []string{"make"}}}},
		"silent":  {},
		"secret":  {"ceiling": base},
		"loose":   {"ceiling": base, "program": protocol.AgentProgram{Kind: "pipe", Protocol: "pipe", Command: []string{"sh"}}},
		"walled":  {"ceiling": base, "program": walled},
		"kept":    {"ceiling": other(func(p *protocol.Permissions) { p.Preset = "sandboxed" }), "program": walled},
		"online": {"ceiling": other(func(p *protocol.Permissions) {
			p.Preset, p.Network, p.DisabledTools = "sandboxed", []string{"a.test"}, []string{"shell", "web_fetch"}
		}), "program": walled},
		"runner": {"ceiling": other(func(p *protocol.Permissions) {
			p.Tools = map[string]protocol.ToolRule{"shell": {Mode: "allow"}}
		})},
	}
	f := &family{rig: rigged(t, func(r *rig, o *bridge.Options) {
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Prompt: calls, Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
				if _, ok := cmd.(protocol.GetState); !ok || states[c.Spec().ID] == nil {
					return false
				}
				c.Respond(cmd, map[string]any{"ok": true, "permissions": states[c.Spec().ID], "program": states[c.Spec().ID]["program"]})
				return true
			}}
		}
	})}
	for name := range states {
		p := api.CreateAgentParams{AgentID: &name}
		if name == "secret" {
			p.Env = &map[string]string{"TOKEN": "x"}
		}
		if _, err := client.Do(f.ctx(), f.client, "", api.CreateAgent, p); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"same": "", "less": "", "kept": "", "walled": "shell without asking", "online": "the network of a.test without asking", "loose": "run a program that nothing confines",
		"unblocked": "the blocked path /site/keys", "elsewhere": "the path /etc", "unasked": "shell without asking", "free": "the preset yolo",
		"allowed": "shell in /site, which was allowed for the session", "secret": "its environment variables", "silent": "cannot be read",
	} {
		got := f.ask("me", "send", `{"agent_id":"`+name+`","content":"hello"}`)
		if want == "" && !strings.HasPrefix(got, `{"content":"hello",`) || want != "" && (!strings.HasPrefix(got, "error") || !strings.Contains(got, want)) {
			t.Errorf("%s: %s", name, got)
		}
	}
	// What runs programs unasked itself gets no more through one that the kernel holds to the same.
	if got := f.ask("runner", "send", `{"agent_id":"walled","content":"hello"}`); !strings.HasPrefix(got, `{"content":"hello",`) {
		t.Errorf("runner: %s", got)
	}
}

// What waits for another agent's turn is compared again when it begins: what that one
// may do meanwhile, the sender does not get.
func TestAttackThroughAnAgentThatIsWidened(t *testing.T) {
	base := protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/data"}}
	var mu sync.Mutex
	theirs := base
	running, finish := make(chan struct{}), make(chan struct{})
	ran := make(chan string, 4)
	f := &family{rig: rigged(t, func(r *rig, o *bridge.Options) {
		r.launcher.Plan = func(spec supervisor.Spec, _ int) supervisortest.Play {
			return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				switch {
				case spec.ID == "me":
					calls(c, p)
				case p.Message == "busy":
					close(running)
					<-finish
					c.Finish(p, "done")
				default:
					ran <- p.Message
					c.Finish(p, "done")
				}
			}, Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
				if _, ok := cmd.(protocol.GetState); !ok {
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				held := base
				if spec.ID == "other" {
					held = theirs
				}
				c.Respond(cmd, map[string]any{"ok": true, "permissions": map[string]any{"ceiling": held}})
				return true
			}}
		}
	})}
	f.create("me")
	f.create("other")
	busy := make(chan error)
	go func() {
		_, err := client.Do(f.ctx(), f.client, "other", api.Send, api.SendParams{Content: "busy"})
		busy <- err
	}()
	<-running
	got := make(chan string)
	go func() { got <- f.ask("me", "send", `{"agent_id":"other","content":"read /secret"}`) }()
	other, err := f.sup.Agent("other")
	if err != nil {
		t.Fatal(err)
	}
	for len(other.Info().Waiting) == 0 {
		runtime.Gosched()
	}
	// People see which requests wait, an agent how many.
	list, err := client.Do(f.ctx(), f.client, "", api.ListAgents, api.None{})
	if i := slices.IndexFunc(list.Agents, func(a api.AgentInfo) bool { return a.AgentID == "other" }); err != nil || i < 0 ||
		!slices.Equal(list.Agents[i].Waiting, other.Info().Waiting) || list.Agents[i].Queued != 1 {
		t.Errorf("what waits: %+v, %v", list, err)
	}
	told, failure := f.server.HostCall(f.ctx(), supervisor.Caller{AgentID: "me"}, "list_agents", []byte("{}"))
	if failure != nil || !strings.Contains(string(told), `"queued":1`) || strings.Contains(string(told), "waiting") {
		t.Errorf("an agent is told %s, %v", told, failure)
	}
	mu.Lock()
	theirs.AllowedPaths = []string{"/data", "/secret"}
	mu.Unlock()
	close(finish)
	if err := <-busy; err != nil {
		t.Error(err)
	}
	queued := <-got
	if at := f.ask("me", "send", `{"agent_id":"other","content":"read /secret"}`); queued != at || !strings.HasPrefix(at, "error -32003") {
		t.Errorf("when its turn began: %s\nwhen it is called:   %s", queued, at)
	}
	mu.Lock()
	theirs = base
	mu.Unlock()
	if got := f.ask("me", "send", `{"agent_id":"other","content":"hello"}`); !strings.HasPrefix(got, `{"content":`) {
		t.Errorf("within its own again: %s", got)
	}
	if first := <-ran; first != "hello" || len(ran) > 0 {
		t.Errorf("the other one ran %s, and %d more", first, len(ran))
	}
}

// An agent starts no process of an agent that it did not create: neither a saved one's,
// which create_agent refuses it, nor one's that was shut down.
func TestAttackWakeAnotherAgent(t *testing.T) {
	f := familyOf(t, "trusted", "down")
	f.save("home/sessions/asleep.jsonl", []byte(savedText), 1)
	if _, body := f.post("/agent/down", callBody("shutdown")); !strings.Contains(body, `"success":true`) {
		t.Fatal(body)
	}
	if got := f.ask("trusted", "destroy_agent", `{"agent_id":"asleep"}`); got != "error -32003 Not permitted: asleep is saved and does not run: destroy_agent is for agents that run, and that one has created" {
		t.Errorf("destroy of a saved agent: %s", got)
	}
	for _, name := range []string{"asleep", "down"} {
		for _, method := range []string{"get_tokens", "get_context", "get_model", "send"} {
			got := f.ask("trusted", method, `{"agent_id":"`+name+`","content":"hello"}`)
			if !strings.HasPrefix(got, "error -32003 Not permitted: "+name+" does not run and trusted did not create it") {
				t.Errorf("%s of %s: %s", method, name, got)
			}
		}
	}
	for _, info := range f.sup.Agents() {
		if info.ID == "asleep" || info.ID == "down" && info.State != supervisor.Stopped {
			t.Errorf("%s was started: %+v", info.ID, info)
		}
	}
	// Its own it may wake.
	f.ask("trusted", "create_agent", `{"agent_id":"mine"}`)
	f.post("/agent/mine", callBody("shutdown"))
	if got := f.ask("trusted", "send", `{"agent_id":"mine","content":"hello"}`); !strings.HasPrefix(got, `{"content":"hello",`) {
		t.Errorf("its own: %s", got)
	}
}
