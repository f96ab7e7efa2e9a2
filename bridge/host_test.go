package bridge_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// calls plays a prompt "METHOD PARAMS" as a host call, whose answer is said;
// "wait" waits for a cancel, "crash" ends the process, and anything else is
// echoed.
func calls(c *supervisortest.Child, p protocol.Prompt) {
	method, params, call := strings.Cut(p.Message, " {")
	switch {
	case call:
		r, ok := c.Host(p, method, "{"+params)
		switch {
		case !ok:
			c.Say("cancelled")
		case r.Error != nil:
			c.Say(fmt.Sprintf("error %d %s", r.Error.Code, r.Error.Message))
		default:
			c.Say(string(r.Result))
		}
		c.Finish(p, "")
	case p.Message == "wait":
		supervisortest.UntilAborted(c, p)
	case p.Message == "crash":
		c.Crash(supervisor.Exit{Code: 7})
	default:
		supervisortest.Echo(c, p)
	}
}

// family is a rig whose agents call. Those whose name begins with trusted or
// yolo are. What Spec was asked for is in its asked.
type family struct {
	*rig
	asked chan supervisor.Spec // the last ones
}

func familyOf(t *testing.T, names ...string) *family {
	f := &family{asked: make(chan supervisor.Spec, 64)}
	f.rig = rigged(t, func(r *rig, o *bridge.Options) {
		plays(calls)(r, o)
		o.Runtime = withSpec{o.Runtime, func(s *supervisor.Spec) error {
			f.asked <- *s
			return nil
		}}
	})
	for _, name := range names {
		f.create(name)
		<-f.asked
	}
	return f
}

// ask lets an agent make a host call and returns what it said.
func (f *family) ask(agent, method, params string) string {
	f.t.Helper()
	r, err := client.Do(f.ctx(), f.client, agent, api.Send, api.SendParams{Content: method + " " + params})
	if err != nil {
		f.t.Fatalf("%s %s of %s: %v", method, params, agent, err)
	}
	return protocol.Value(r.Content)
}

func (f *family) want(agent, method, params, want string) {
	f.t.Helper()
	if got := f.ask(agent, method, params); got != want {
		f.t.Errorf("%s %s of %s:\ngot  %s\nwant %s", method, params, agent, got, want)
	}
}

func TestHostCreate(t *testing.T) {
	f := familyOf(t, "trusted", "box")
	f.want("trusted", "create_agent", `{"agent_id":"b"}`, `{"agent_id":"b","url":"/agent/b"}`)
	want := supervisor.Spec{
		ID: "b", Fresh: true, Cwd: "/site", Permissions: protocol.Permissions{Preset: "sandboxed"},
		Labels: supervisor.Labels{Parent: "trusted", Provenance: "trusted", Depth: 1},
		Ceiling: &protocol.Permissions{
			Preset: "trusted", DisabledTools: []string{"shell"}, AllowedPaths: []string{"/data", "/site"}, BlockedPaths: []string{"/site/keys"},
		},
	}
	got := <-f.asked
	want.Labels.EnvDigest, got.Host = got.Labels.EnvDigest, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is to be run (-want +got):\n%s", diff)
	}
	f.want("trusted", "create_agent", `{"agent_id":"b"}`,
		"error -32602 Agent already exists: b")
	f.want("trusted", "create_agent", `{"agent_id":"c","preset":"trusted","cwd":"/elsewhere"}`,
		"error -32003 Not permitted: /elsewhere is outside of what this agent's ceiling allows: /data, /site")
	f.want("trusted", "create_agent", `{"agent_id":"c","preset":"trusted","cwd":"/data/elsewhere","allowed_write_paths":[]}`,
		`{"agent_id":"c","url":"/agent/c"}`)
	if p := <-f.asked; p.Permissions.Preset != "trusted" || p.Cwd != "/data/elsewhere" || p.Permissions.WritePaths == nil || len(p.Permissions.WritePaths) != 0 {
		t.Errorf("asked for %+v", p)
	}
	f.want("box", "create_agent", `{"agent_id":"d","preset":"trusted"}`,
		"error -32602 Invalid parameter preset: trusted is more than the parent's sandboxed")
	f.want("trusted", "create_agent", `{"agent_id":"d","preset":"yolo"}`,
		"error -32602 Invalid parameter preset: yolo cannot be granted over RPC, but by create_agent if allow_yolo is true in server of the home's configuration")
	f.want("trusted", "create_agent", `{"agent_id":"d","parent_agent_id":"box"}`,
		"error -32602 Invalid parameter parent_agent_id: trusted creates agents for itself alone")
	f.want("trusted", "create_agent", `{"agent_id":"d","parent_agent_id":"trusted","limits":{"colour":5}}`, "error -32602 Unknown parameter: limits.colour: known are: "+
		"agents, cost_usd, cpu_s, memory_bytes, open_files, output_bytes_per_s, processes, requests_per_minute, tokens, tokens_per_minute, turn_s")
	created := f.ask("trusted", "create_agent", `{"agent_id":"d","initial_message":"hello","wait_for_initial_response":true}`)
	if !strings.Contains(created, `"initial_response":{"content":"hello"`) {
		t.Errorf("initial response: %s", created)
	}
	list, err := client.Do(f.ctx(), f.client, "", api.ListAgents, api.None{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list.Agents {
		if parent := protocol.Value(a.ParentAgentID); a.AgentID == "trusted" && a.ChildCount != 3 || len(a.AgentID) == 1 && parent != "trusted" {
			t.Errorf("%s: %d children, parent %q", a.AgentID, a.ChildCount, parent)
		}
	}
}

// Somebody's saved agent that does not run is not there for the taking: its
// conversation, prompt and permissions would be the taker's.
func TestSavedAgentsAreNotTaken(t *testing.T) {
	f := familyOf(t, "trusted")
	path := f.sessions.Path("victim")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.want("trusted", "create_agent", `{"agent_id":"victim","system_prompt":"mine"}`,
		"error -32003 Not permitted: there is a saved agent victim: to go on with it is for people; choose another name, or send to it")
	if len(f.asked) != 0 {
		t.Error("it was started")
	}
}

// How an agent's approvals are answered holds for those that it creates.
func TestApprovalsAreInherited(t *testing.T) {
	f := familyOf(t)
	if _, err := client.Do(f.ctx(), f.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("trusted"), Approvals: new("ask")}); err != nil {
		t.Fatal(err)
	}
	<-f.asked
	f.ask("trusted", "create_agent", `{"agent_id":"b"}`)
	if p := <-f.asked; p.Labels.Approvals != "ask" {
		t.Errorf("approvals of the new one: %q", p.Labels.Approvals)
	}
}

func TestHostMethods(t *testing.T) {
	f := familyOf(t, "trusted", "trusted-2", "box", "yolo")
	f.ask("trusted", "create_agent", `{"agent_id":"mine"}`)
	f.ask("mine", "create_agent", `{"agent_id":"grandchild"}`)
	tokens := `{"system":150,"tools":0,"messages":42,"total":192,"budget":8000,"available":6000}`
	for _, test := range []struct{ agent, method, params, want string }{
		{"box", "get_tokens", `{"agent_id":"yolo"}`, tokens},
		{"box", "get_tokens", `{}`, "error -32602 Missing required parameter: agent_id"},
		{"box", "get_tokens", `{"agent_id":5}`, "error -32602 Invalid parameter agent_id: must be a string"},
		{"box", "get_tokens", `{"agent_id":"../x"}`, "error -32602 Invalid parameter agent_id: want a name like worker-1: a letter or digit, then up to 62 letters, digits, '_', '-' and single '.'; one more '.' in front makes it temporary"},
		{"box", "get_tokens", `{"agent_id":"nobody"}`, "error -32602 Agent not found: nobody: no agent of that name runs, and none is saved"},
		{"box", "set_permissions", `{"agent_id":"box","preset":"trusted"}`, "error -32003 Not permitted: an agent cannot ask for set_permissions"},
		{"box", "create_agent", `{"env":{"A":"b"}}`, "error -32602 Invalid parameter env: box cannot set it: that is for people"},
		{"box", "respond_permission", `{"agent_id":"box"}`, "error -32003 Not permitted: an agent cannot ask for respond_permission"},
		{"box", "no_such", `{}`, "error -32003 Not permitted: an agent cannot ask for no_such"},
		{"trusted", "send", `{"agent_id":"nobody","content":"x"}`, "error -32602 Agent not found: nobody: no agent of that name runs, and none is saved"},
		{"trusted", "send", `{"agent_id":"box"}`, "error -32602 Missing required parameter: content"},
		{
			"trusted", "send", `{"agent_id":"trusted","content":"x"}`,
			"error -32001 Resource unavailable: would wait for itself: trusted → trusted",
		},
		{
			"box", "send", `{"agent_id":"trusted","content":"x"}`,
			"error -32003 Not permitted: an agent cannot send to one that may do more than itself: trusted may and box may not: the preset trusted (at most sandboxed)",
		},
		{
			"trusted", "send", `{"agent_id":"trusted-2","content":"x","when_busy":"steer"}`,
			"error -32003 Not permitted: trusted did not create trusted-2: it cannot steer it",
		},
		{
			"trusted", "destroy_agent", `{"agent_id":"box"}`,
			"error -32003 Not permitted: trusted did not create box: destroy_agent is for agents that one has created",
		},
		{
			"trusted", "destroy_agent", `{"agent_id":"trusted"}`,
			"error -32003 Not permitted: trusted did not create trusted: destroy_agent is for agents that one has created",
		},
		{
			"mine", "destroy_agent", `{"agent_id":"trusted"}`,
			"error -32003 Not permitted: mine did not create trusted: destroy_agent is for agents that one has created",
		},
		{
			"trusted", "cancel", `{"agent_id":"box","request_id":"r"}`,
			"error -32003 Not permitted: trusted did not create box: cancel is for agents that one has created",
		},
		{"trusted", "cancel", `{"agent_id":"grandchild","request_id":"r"}`, `{"cancelled":false,"request_id":"r","reason":"not_found_or_completed"}`},
		{"trusted", "get_messages", `{"agent_id":"mine","limit":0}`, `{"messages":[],"total":4,"offset":0}`},
		{
			"trusted", "shutdown_server", `{}`,
			"error -32003 Not permitted: trusted is trusted: only an agent without restrictions can end the server",
		},
		{"trusted", "destroy_agent", `{"agent_id":"nobody"}`, "error -32602 Agent not found: nobody: no agent of that name runs, and none is saved"},
		{"trusted", "destroy_agent", `{"agent_id":"mine"}`, `{"success":true,"agent_id":"mine"}`},
	} {
		f.want(test.agent, test.method, test.params, test.want)
	}
	if got := f.ask("box", "send", `{"agent_id":"trusted-2","content":"x"}`); !strings.HasPrefix(got, "error") {
		t.Error(got)
	}
	if got := f.ask("trusted", "send", `{"agent_id":"trusted-2","content":"hello"}`); !strings.HasPrefix(got, `{"content":"hello",`) {
		t.Error(got)
	}
	f.seesAll("trusted")
	f.gone("mine", "grandchild")
}

// seesAll checks that an agent is shown what a client is.
func (f *family) seesAll(agent string) {
	f.t.Helper()
	got := f.ask(agent, "list_agents", `{}`)
	if !strings.Contains(got, `{"agent_id":"box",`) || !strings.Contains(got, `"pending_permissions":0`) {
		f.t.Errorf("list_agents: %s", got)
	}
	_, answer := f.post("/", `{"jsonrpc":"2.0","id":1,"method":"list_agents"}`)
	if strings.Count(answer, `"agent_id"`) != strings.Count(got, `"agent_id"`) {
		f.t.Errorf("an agent sees %s, a client %s", got, answer)
	}
}

func (f *family) gone(names ...string) {
	f.t.Helper()
	for _, info := range f.sup.Agents() {
		if slices.Contains(names, info.ID) {
			f.t.Errorf("agent %s is still there", info.ID)
		}
	}
}

func TestHostDepth(t *testing.T) {
	f := familyOf(t, "trusted")
	parent := "trusted"
	for i := range 5 {
		child := fmt.Sprint("d", i+1)
		f.want(parent, "create_agent", fmt.Sprintf(`{"agent_id":%q}`, child), fmt.Sprintf(`{"agent_id":%q,"url":"/agent/%s"}`, child, child))
		parent = child
	}
	f.want(parent, "create_agent", `{"agent_id":"d6"}`, "error -32602 Invalid parameter parent_agent_id: more than 5 agents deep")
	if _, err := client.Do(f.ctx(), f.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "trusted"}); err != nil {
		t.Fatal(err)
	}
	f.gone("trusted", "d1", "d2", "d3", "d4", "d5")
}

// An agent is not left behind by a creator that is destroyed while it starts.
func TestCreatorDestroyedMeanwhile(t *testing.T) {
	starting, start := make(chan struct{}), make(chan struct{})
	f := &family{}
	f.rig = rigged(t, func(r *rig, o *bridge.Options) {
		plays(calls)(r, o)
		o.Runtime = withSpec{o.Runtime, func(s *supervisor.Spec) error {
			if s.ID == "child" {
				close(starting)
				<-start
			}
			return nil
		}}
	})
	f.create("trusted")
	created := make(chan error, 1)
	go func() {
		_, err := client.Do(f.ctx(), f.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("child"), ParentAgentID: new("trusted")})
		created <- err
	}()
	<-starting
	if _, err := client.Do(f.ctx(), f.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "trusted"}); err != nil {
		t.Fatal(err)
	}
	close(start)
	if e := rpcError(t, <-created); !strings.Contains(e.Message, "destroyed meanwhile") {
		t.Errorf("create: %v", e)
	}
	f.gone("trusted", "child")
}

// What an agent asks of another ends with the turn that asked, and a crash of
// the other is what it is told.
func TestHostSendEnds(t *testing.T) {
	t.Run("crashed", func(t *testing.T) {
		f := familyOf(t, "trusted", "b")
		f.want("trusted", "send", `{"agent_id":"b","content":"crash"}`,
			"error -32000 Execution failed: child crashed: process ended (incarnation 1, exit status 7)")
	})
	for name, end := range map[string]func(f *family) error{
		"cancelled": func(f *family) error {
			_, err := client.Do(f.ctx(), f.client, "trusted", api.Cancel, api.CancelParams{RequestID: "cancelled"})
			return err
		},
		"destroyed": func(f *family) error {
			_, err := client.Do(f.ctx(), f.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "trusted"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := familyOf(t, "trusted", "b")
			ended := f.turnEnds("b")
			sent := make(chan error, 1)
			go func() {
				_, err := client.Do(f.ctx(), f.client, "trusted", api.Send, api.SendParams{
					Content: `send {"agent_id":"b","content":"wait"}`, RequestID: &name,
				})
				sent <- err
			}()
			f.until("b", "working")
			if err := end(f); err != nil {
				t.Fatal(err)
			}
			if got := <-ended; !strings.Contains(got, `"outcome":"cancelled"`) || !strings.Contains(got, "trusted, which asked for it") {
				t.Errorf("b's turn ended with %s", got)
			}
			<-sent
		})
	}
}

// turnEnds gives the next turn_end of an agent.
func (f *family) turnEnds(agent string) <-chan string {
	f.t.Helper()
	a, err := f.sup.Agent(agent)
	if err != nil {
		f.t.Fatal(err)
	}
	sub, err := a.Subscribe(1 << 40)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.watch(sub, "turn_end")
}

func (f *family) watch(sub *supervisor.Subscription, want string) <-chan string {
	found := make(chan string, 1)
	go func() {
		defer sub.Close()
		for {
			batch, err := sub.Next(f.ctx())
			if err != nil {
				found <- err.Error()
				return
			}
			for _, e := range batch {
				if strings.Contains(string(e.Data), want) {
					found <- string(e.Data)
					return
				}
			}
		}
	}()
	return found
}

// until waits for an event of an agent's running turn.
func (f *family) until(agent, text string) {
	f.t.Helper()
	for event, err := range f.client.Events(f.ctx(), agent, 0, client.Filter{}) {
		if err != nil {
			f.t.Fatal(err)
		}
		if strings.Contains(string(event.Data), text) {
			return
		}
	}
}

// An answer longer than what a child can read is cut.
func TestHostSendIsCut(t *testing.T) {
	f := familyOf(t, "trusted", "b")
	got := f.ask("trusted", "send", `{"agent_id":"b","content":"`+strings.Repeat("é", 100_000)+`"}`)
	if !strings.HasPrefix(got, `{"content":"ééé`) || !strings.Contains(got, `"truncated":true`) || len(got) > 128<<10+500 {
		t.Errorf("%d bytes: %.100s", len(got), got)
	}
}

// An agent without restrictions can end the server.
func TestHostShutdown(t *testing.T) {
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(calls)(r, o)
	})
	r.create("yolo")
	if _, err := client.Do(r.ctx(), r.client, "yolo", api.Send, api.SendParams{Content: "shutdown_server {}"}); err != nil {
		t.Logf("the send went with it: %v", err)
	}
	<-r.server.Draining()
	_, failure := r.server.HostCall(context.Background(), supervisor.Caller{AgentID: "yolo"}, "list_agents", []byte("{}"))
	if failure == nil || !strings.Contains(failure.Message, "shutting down") {
		t.Errorf("a call afterwards: %+v", failure)
	}
}

func TestRespondPermission(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		answer, _ := c.Permission(p, protocol.PermissionRequest{
			ToolName: "shell", Action: protocol.ActionExecute, Summary: p.Message, Deadline: "2026-01-20T09:11:02Z",
			Decisions: []protocol.Decision{protocol.AllowOnce, protocol.Deny},
		})
		c.Say(fmt.Sprintf("%s: %s", answer.Decision, answer.Reason))
		c.Finish(p, "")
	}))
	r.create("a")
	running := r.begin("a", "r")
	f := &family{rig: r}
	f.until("a", "permission_request")
	var held api.GetPermissionsResult
	if err := r.client.Call(r.ctx(), "/agent/a", "get_permissions", nil, &held); err != nil {
		t.Fatal(err)
	}
	if len(held.Pending) != 1 || held.Pending[0].Deadline == "" {
		t.Fatalf("pending %+v", held.Pending)
	}
	if list, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{}); err != nil || list.Agents[0].PendingPermissions != 1 ||
		len(list.Agents[0].Pending) != 1 || list.Agents[0].Pending[0].RequestID != held.Pending[0].RequestID {
		t.Errorf("list %+v, %v", list, err)
	}
	// What somebody is asked about is none of another agent's business.
	listed, failure := r.server.HostCall(r.ctx(), supervisor.Caller{AgentID: "a"}, "list_agents", []byte("{}"))
	if failure != nil || !strings.Contains(string(listed), `"pending_permissions":1`) || strings.Contains(string(listed), `"pending":`) {
		t.Errorf("an agent is told %s, %+v", listed, failure)
	}
	answer := api.RespondPermissionParams{RequestID: held.Pending[0].RequestID, Decision: protocol.AllowSession, Reason: new("not now")}
	var done api.RespondPermissionResult
	err := r.client.Call(r.ctx(), "/agent/a", "respond_permission", answer, &done)
	if e := rpcError(t, err); e.Code != -32602 || e.Message != "Invalid parameter decision: want one of allow_once, deny, which the request offers, is allow_session" {
		t.Errorf("a decision that was not offered: %v", e)
	}
	answer.Decision = protocol.Deny
	if err := r.client.Call(r.ctx(), "/agent/a", "respond_permission", answer, &done); err != nil || !done.Responded {
		t.Errorf("respond: %+v, %v", done, err)
	}
	err = r.client.Call(r.ctx(), "/agent/a", "respond_permission", answer, &done)
	if e := rpcError(t, err); e.Data.Type != "PERMISSION_REQUEST_NOT_FOUND" {
		t.Errorf("a second answer: %v", e)
	}
	if got := r.await(running); protocol.Value(got.result.Content) != "deny: not now" {
		t.Errorf("the turn said %q", protocol.Value(got.result.Content))
	}
}
