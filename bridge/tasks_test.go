package bridge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

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

// askTask is a request of a task of the executor, or of the agent at that path.
func (r *rig) askTask(path, id, prompt string) (body string) {
	_, body = r.post(path, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":%q,"request_id":%q}}`, prompt, id))
	return body
}

// Tasks of one role run side by side, each by an agent of its own that has heard of nothing else
// and is gone with it.
func TestTasksOfARoleSideBySide(t *testing.T) {
	const n = 3
	var heard sync.Map // the prompts of each process
	all := make(chan struct{}, n)
	together := make(chan struct{})
	r := rigged(t, func(r *rig, o *bridge.Options) {
		tasks(r, o)
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Command: stateful, Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				if _, again := heard.LoadOrStore(c, p.Message); again {
					t.Errorf("an agent has heard of more than its task: %s", p.Message)
				}
				all <- struct{}{}
				<-together
				playTask(c, p)
			}}
		}
	})
	bodies := make(chan string, n)
	for i := range n {
		go func() { bodies <- r.askTask("/", fmt.Sprintf("t%d", i), "x") }()
	}
	for range n {
		<-all
	}
	close(together)
	agents := map[string]bool{}
	for range n {
		body := <-bodies
		if agents[gjson.Get(body, "result.metadata.agent_id").Str] = true; gjson.Get(body, "result.status").Str != "success" {
			t.Errorf("got %s", body)
		}
	}
	if _, left := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"list_agents"}`); len(agents) != n || gjson.Get(left, "result.agents.#").Int() != 0 {
		t.Errorf("%d agents did it, and there are %s", len(agents), left)
	}
}

// A task that has ended is told again, also by the next server; one that failed by a fault is
// done again.
func TestTaskOfARoleAgain(t *testing.T) {
	plans := t.TempDir()
	var prompts atomic.Int32
	fails := true
	change := func(r *rig, o *bridge.Options) {
		tasks(r, o)
		o.PlansDir = plans
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Command: stateful, Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				if strings.Contains(p.Message, "be stopped") {
					go r.post("/agent/"+c.Spec().ID, `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)
					supervisortest.UntilAborted(c, p)
					return
				}
				if prompts.Add(1); fails {
					fails = false
					c.Crash(supervisor.Exit{Code: 1})
					return
				}
				playTask(c, p)
			}}
		}
	}
	r := rigged(t, change)
	if body := r.askTask("/", "t1", "x"); gjson.Get(body, "error.data.type").Str != "CHILD_CRASHED" || gjson.Get(body, "error.data.request_id").Str != "t1" ||
		!strings.HasPrefix(gjson.Get(body, "error.data.agent_id").Str, ".task-") {
		t.Errorf("of a crash: %s", body)
	}
	if body := r.askTask("/", "t2", "be stopped"); gjson.Get(body, "error.data.type").Str != "AGENT_STOPPED" ||
		!strings.Contains(body, "Send it again with the same request_id: the task is done again") {
		t.Errorf("of an agent that was stopped: %s", body)
	}
	if body := r.askTask("/", "t1", "x"); gjson.Get(body, "result.status").Str != "success" || gjson.Get(body, "result.replayed").Bool() {
		t.Errorf("done again: %s", body)
	}
	first := r.askTask("/", "t1", "x")
	if !gjson.Get(first, "result.replayed").Bool() {
		t.Errorf("told again: %s", first)
	}
	if body := r.askTask("/", "t1", "y"); gjson.Get(body, "error.data.type").Str != "REQUEST_ID_CONFLICT" {
		t.Errorf("another task of that id: %s", body)
	}
	if body := rigged(t, change).askTask("/", "t1", "x"); body != first || prompts.Load() != 2 {
		t.Errorf("the next server says %s, after %d prompts", body, prompts.Load())
	}
}

// A task is cancelled by its id alone, whoever does it, and stays so.
func TestTaskCancelledByItsID(t *testing.T) {
	began := make(chan struct{}, 1)
	r := rigged(t, func(r *rig, o *bridge.Options) {
		tasks(r, o)
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Command: stateful, Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				switch {
				case strings.Contains(p.Message, "badly first") && strings.HasPrefix(p.Message, "Carry out"):
					playTask(c, protocol.Prompt{ID: p.ID, Message: "the impossible"})
				default:
					began <- struct{}{}
					supervisortest.UntilAborted(c, p)
				}
			}}
		}
	})
	r.create("worker-1")
	for _, tt := range []struct{ name, path, cancelAt, prompt string }{
		{"of a role", "/", "/", "x"},
		{"of an agent, at the agent", "/agent/worker-1", "/agent/worker-1", "x"},
		{"of an agent, by its id alone", "/agent/worker-1", "/", "x"},
		{"its repair, of a role", "/", "/", "badly first"},
		{"its repair, of an agent", "/agent/worker-1", "/agent/worker-1", "badly first"},
	} {
		id := strings.ReplaceAll(tt.name, " ", "-")
		done := make(chan string, 1)
		go func() { done <- r.askTask(tt.path, id, tt.prompt) }()
		<-began
		cancel := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"cancel","params":{"request_id":%q}}`, id)
		if _, body := r.post(tt.cancelAt, cancel); !strings.Contains(body, `"cancelled":true`) {
			t.Errorf("%s: cancel says %s", tt.name, body)
		}
		if body := <-done; gjson.Get(body, "result.status").Str != "cancelled" {
			t.Errorf("%s: got %s", tt.name, body)
		}
		if _, body := r.post(tt.cancelAt, cancel); tt.path == tt.cancelAt && tt.prompt == "x" && !strings.Contains(body, `"cancelled":true`) {
			t.Errorf("%s: cancel again says %s", tt.name, body)
		}
	}
}

// An answer that is not of the shape, or is the answer to another task, is asked for again before
// anything that waits for the agent; then the call fails, and says what the agent said.
func TestRepairComesFirst(t *testing.T) {
	var mu sync.Mutex
	var heard []string
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		mu.Lock()
		word, _, _ := strings.Cut(p.Message, " ")
		heard = append(heard, word)
		mu.Unlock()
		if word == "Carry" {
			began <- struct{}{}
			<-goOn
		}
		reply := `{"task_id":"another","status":"success","code":"","explanation":"done"}`
		c.Say(reply)
		c.Finish(p, reply)
	}))
	r.create("a")
	done, sent := make(chan string, 1), make(chan string, 1)
	go func() { done <- r.askTask("/agent/a", "t1", "x") }()
	<-began
	go func() {
		_, body := r.post("/agent/a", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"hello there"}}`)
		sent <- body
	}()
	for a, err := r.sup.Agent("a"); err == nil && len(a.Info().Waiting) == 0; { //nolint:revive // until it waits
		runtime.Gosched()
	}
	close(goOn)
	body := <-done
	<-sent
	failure := gjson.Get(body, "error.data")
	if !strings.Contains(failure.Get("details").Str, `it is the answer to another task: task_id is "another", and must be "t1"`) ||
		failure.Get("agent_id").Str != "a" || failure.Get("request_id").Str != "t1/again" || !strings.Contains(failure.Get("partial").Str, `"another"`) {
		t.Errorf("got %s", body)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(heard, " "); got != "Carry Your hello" {
		t.Errorf("the agent heard %q", got)
	}
}

// The directory of a task is the one in which its agent works, within that of its role or pool, or
// is refused.
func TestTaskDirectory(t *testing.T) {
	role := t.TempDir()
	inside, exchanged := filepath.Join(role, "src"), filepath.Join(role, "exchanged")
	for _, dir := range []string{inside, exchanged} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var started sync.Map // working directories of the processes
	r := rigged(t, func(r *rig, o *bridge.Options) {
		tasks(r, o)
		o.Roles = map[agents.Role]api.CreateAgentParams{agents.Executor: {Cwd: &role}}
		plan := r.launcher.Plan
		r.launcher.Plan = func(s supervisor.Spec, n int) supervisortest.Play {
			started.Store(s.Cwd, true)
			play := plan(s, n)
			other := play.Command
			play.Command = func(c *supervisortest.Child, cmd protocol.Command) bool {
				if _, asks := cmd.(protocol.GetState); !asks || s.Cwd == "" {
					return other(c, cmd)
				}
				cwd := s.Cwd
				if cwd == exchanged { // with a link, before the process looked
					cwd = "/elsewhere"
				}
				c.Respond(cmd, map[string]any{"ok": true, "cwd": cwd})
				return true
			}
			return play
		}
	})
	r.create("a") // which works in /site
	for _, tt := range []struct{ path, params, want string }{
		{"/", `"context":{"current_directory":"` + inside + `"}`, `"status":"success"`},
		{"/", `"context":{"current_directory":"` + role + `"}`, `"status":"success"`},
		{"/", `"context":{"current_directory":"/"}`, `context.current_directory`},
		{"/", `"context":{"current_directory":"` + exchanged + `"}`, `Invalid parameter context.current_directory: ` + exchanged + ` is not in ` + role},
		{"/", `"context":{"current_directory":"src"}`, `want an absolute path`},
		{"/agent/a", `"context":{"current_directory":"/site"}`, `"status":"success"`},
		{"/agent/a", `"context":{"current_directory":"/"}`, `the agent a works in /site`},
	} {
		_, body := r.post(tt.path, `{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":"x",`+tt.params+`}}`)
		if !strings.Contains(body, tt.want) {
			t.Errorf("%s with %s: got %s", tt.path, tt.params, body)
		}
	}
	for _, dir := range []string{inside, role} {
		if _, ok := started.Load(dir); !ok {
			t.Errorf("no process was started in %s", dir)
		}
	}
	const plan = `"plan":{"tasks":[{"id":"t","type":"testing","description":"x"}]}`
	for _, tt := range []struct{ params, want string }{
		{`"pool":{"cwd":"` + role + `"},"context":{"current_directory":"` + inside + `"}`, `"status":"completed"`},
		{`"pool":{"cwd":"` + role + `"},"context":{"current_directory":"` + exchanged + `"}`, exchanged + ` is not in ` + role},
		{`"pool":{"cwd":"` + inside + `"},"context":{"current_directory":"` + role + `"}`, `is not in ` + inside},
		{`"agents":["a"],"context":{"current_directory":"` + role + `"}`, `the agent a works in /site`},
		{`"context":{"current_directory":"."}`, `want an absolute path`},
	} {
		_, body := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"run_plan","params":{`+plan+`,`+tt.params+`}}`)
		if !strings.Contains(body, tt.want) {
			t.Errorf("run_plan with %s: got %s", tt.params, body)
		}
	}
	if agents := r.sup.Agents(); len(agents) != 1 {
		t.Errorf("of agents that may not work where they came to, there is %+v", agents)
	}
}
