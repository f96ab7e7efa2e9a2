package bridge_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// The name of a role, of the agent that is to have it, and of a plan's agents is taken by
// nobody but the server, before it is there and after.
func TestAttackTakeARolesName(t *testing.T) {
	f := &family{rig: rigged(t, func(r *rig, o *bridge.Options) {
		plays(calls)(r, o)
		o.Roles = map[agents.Role]api.CreateAgentParams{agents.Executor: {AgentID: new("maker")}}
	})}
	f.create("trusted")
	f.create(".temp")
	f.save("home/sessions/saved.jsonl", []byte(savedText), 1)
	for range 2 {
		for _, name := range []string{"planner", "executor", "maker", ".plan-0123456789abcdef-1", ".task-0123456789abcdef"} {
			if got := f.ask("trusted", "create_agent", `{"agent_id":"`+name+`"}`); !strings.Contains(got, "is a reserved name") {
				t.Errorf("an agent creates %s: %s", name, got)
			}
			for _, call := range []string{
				`"create_agent","params":{"agent_id":"NAME"}`, `"create_agent","params":{"agent_id":"NAME","if_exists":"use"}`,
				`"load_session","params":{"session_name":"saved","agent_id":"NAME"}`, `"clone_session","params":{"src_session":"saved","dest_session":"NAME"}`,
				`"rename_session","params":{"old_name":"saved","new_name":"NAME"}`, `"save_session","params":{"agent_id":".temp","session_name":"NAME"}`,
				`"save_session","params":{"agent_id":"trusted","session_name":"NAME"}`,
			} {
				_, body := f.post("/", `{"jsonrpc":"2.0","id":1,"method":`+strings.ReplaceAll(call, "NAME", name)+`}`)
				reserved := gjson.Get(body, "error.data.type").Str == "NOT_PERMITTED" && strings.Contains(body, "is a reserved name")
				if !reserved && !strings.Contains(body, "a name that begins with a dot is not saved") {
					t.Errorf("%s for %s: %s", call, name, body)
				}
			}
		}
		// A task of the role takes none of these names.
		_, body := f.post("/", `{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":"x"}}`)
		if by := gjson.Get(body, "result.metadata.agent_id").Str; !strings.HasPrefix(by, ".task-") {
			t.Fatalf("the task was done by %q: %s", by, body)
		}
	}
}

// A session of a role's name that an agent began earlier is not used for the role; one
// that a person began is.
func TestRoleIsNotAnAgentsAgent(t *testing.T) {
	started := make(chan supervisor.Spec, 4)
	r := rigged(t, func(r *rig, o *bridge.Options) {
		tasks(r, o)
		play := r.launcher.Plan
		r.launcher.Plan = func(s supervisor.Spec, n int) supervisortest.Play { started <- s; return play(s, n) }
		o.Roles = map[agents.Role]api.CreateAgentParams{agents.Executor: {AgentID: new("maker")}, agents.Planner: {AgentID: new("thinker")}}
	})
	r.save("home/sessions/maker.jsonl", []byte(savedText+`{"type":"settings","parent_agent_id":"boss","at":"2026-01-20T09:06:02Z"}`+"\n"), 1)
	r.save("home/sessions/thinker.jsonl", []byte(savedText), 2)
	if err := os.Mkdir(filepath.Join(r.home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, body := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":"x"}}`)
	if !strings.Contains(body, "was created by agent boss") {
		t.Error(body)
	}
	if len(started) > 0 {
		t.Errorf("%s was started", (<-started).ID)
	}
	_, body = r.post("/", `{"jsonrpc":"2.0","id":1,"method":"create_plan","params":{"user_request":"x"}}`)
	if len(started) == 0 {
		t.Fatalf("a person's: nothing was started: %s", body)
	}
	if s := <-started; !strings.HasPrefix(s.ID, ".task-") || s.Fresh || !strings.Contains(body, "task_001") {
		t.Errorf("a person's: %s, fresh %t: %s", s.ID, s.Fresh, body)
	}
}
