package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// tasks makes agents play at tasks: they answer in the shape that is asked for,
// unless it is the impossible that they are asked for. maker is the executor.
func tasks(r *rig, o *bridge.Options) {
	r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
		return supervisortest.Play{Prompt: playTask, Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
			if update, ok := cmd.(protocol.UpdateContext); ok && strings.Contains(string(update.Data), "none") {
				c.Respond(cmd, map[string]any{"ok": false, "error": `update_context: there is no "state:none" to remove`})
				return true
			}
			return stateful(c, cmd)
		}}
	}
	o.Roles = map[agents.Role]api.CreateAgentParams{agents.Executor: {AgentID: new("maker")}}
}

func playTask(c *supervisortest.Child, p protocol.Prompt) {
	reply := p.Message
	switch {
	case strings.Contains(p.Message, "the impossible"), strings.HasPrefix(p.Message, "Your answer could not be used"):
		reply = "I would rather not say."
	case strings.HasPrefix(p.Message, "Carry out this task"):
		reply = `{"status":"success","code":"package greeter","explanation":"It greets."}`
	case strings.HasPrefix(p.Message, "Make a plan"):
		reply = `{"tasks":[{"id":"task_001","type":"testing","description":"Test it","dependencies":[],"priority":1}],` +
			`"estimated_time_seconds":120,"explanation":"One is enough."}`
	}
	c.Say(reply)
	c.Finish(p, reply)
}

// The error of a task whose answer the model's service cut off says so.
func TestTaskAnswerCutOff(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		c.Say(`{"status":"succ`)
		c.FinishWith(p, "", protocol.StopMaxTokens)
	}))
	r.create("a")
	if _, got := r.post("/agent/a", `{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":"x"}}`); !strings.Contains(got, "cut the answer off (max_tokens)") {
		t.Errorf("got %s", got)
	}
}

// The files of a task are found behind any number of messages that came since,
// and none of another turn are among them.
func TestTaskFilesOfLongConversation(t *testing.T) {
	r := rigged(t, tasks)
	const before, after = 100, 200
	var conversation []protocol.Message
	for i := range before + after {
		turn := fmt.Sprintf("chat-%d", i)
		if i == before {
			conversation = append(conversation,
				protocol.Message{Role: protocol.RoleUser, TurnID: "t1"},
				protocol.Message{Role: protocol.RoleTool, TurnID: "t1", Changed: []string{"/b"}, Created: []string{"/b"}},
				protocol.Message{Role: protocol.RoleTool, TurnID: "t1", Changed: []string{"/c", "/b", "/a"}})
		}
		conversation = append(conversation,
			protocol.Message{Role: protocol.RoleUser, TurnID: turn},
			protocol.Message{Role: protocol.RoleTool, TurnID: turn, Changed: []string{"/else"}})
	}
	r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
		return supervisortest.Play{Prompt: playTask, Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
			get, ok := cmd.(protocol.GetMessages)
			if !ok {
				return stateful(c, cmd)
			}
			from := min(int(protocol.Value(get.Offset)), len(conversation))
			page := conversation[from:]
			page = page[:min(len(page), int(*get.Limit), 10)] // fewer than asked for, as where they are long
			c.Respond(cmd, map[string]any{"ok": true, "messages": page, "total": len(conversation), "offset": from})
			return true
		}}
	}
	r.create("worker-1")
	_, body := r.post("/agent/worker-1", `{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":"x","request_id":"t1"}}`)
	if want := `"files_modified":["/a","/c"],"files_created":["/b"]`; !strings.Contains(body, want) {
		t.Errorf("got %s, want %s", body, want)
	}
}

// A task that is cancelled is told so, with what it has changed until then.
func TestTaskCancelled(t *testing.T) {
	r := rigged(t, plays(supervisortest.UntilAborted))
	r.create("worker-1")
	done := make(chan string, 1)
	go func() {
		_, body := r.post("/agent/worker-1", `{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":"x","request_id":"t1"}}`)
		done <- body
	}()
	for {
		_, body := r.post("/agent/worker-1", `{"jsonrpc":"2.0","id":2,"method":"cancel","params":{"request_id":"t1"}}`)
		if strings.Contains(body, `"cancelled":true`) {
			break
		}
	}
	if body := <-done; !strings.Contains(body, `"status":"cancelled"`) {
		t.Errorf("got %s", body)
	}
}

// A run of a plan is told part by part, and then only by its result.
func TestRunPlanStream(t *testing.T) {
	r := rigged(t, tasks)
	plan := api.RunPlanParams{RequestID: new("run"), Pool: &api.PlanPool{}, Plan: api.Plan{Tasks: []api.PlanTask{
		{ID: "a", Type: "analysis", Description: "look"}, {ID: "b", Type: "analysis", Description: "look again", Dependencies: []string{"a"}},
	}}}
	for _, want := range []string{
		"plan_start, task_start a, task_end a success, task_start b, task_end b success, plan_end completed, completed",
		"plan_start, plan_end completed, completed again",
	} {
		var told []string
		for part, err := range r.client.RunPlanStream(r.ctx(), plan) {
			if err != nil {
				t.Fatal(err)
			}
			said := part.Name()
			switch part := part.(type) {
			case client.PlanStart:
			case client.TaskStart:
				said += " " + part.TaskID
			case client.TaskEnd:
				said += " " + part.TaskID + " " + part.Status
			case client.PlanEnd:
				said += " " + part.Status
			case client.PlanResult:
				if said = part.Status; part.Replayed {
					said += " again"
				}
			case client.UnknownPart:
				t.Errorf("nobody knows %s %s", part.Method, part.Params)
			}
			told = append(told, said)
		}
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	plan.Plan.Tasks = nil
	for _, err := range r.client.RunPlanStream(r.ctx(), plan) {
		wantError(t, err, jsonrpc.CodeInvalidParams, "INVALID_PARAMS", 200)
	}
}
