package bridge_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// planOf is a plan of tasks, each of which needs the one before.
func planOf(ids ...string) api.Plan {
	var p api.Plan
	for i, id := range ids {
		task := api.PlanTask{ID: id, Type: api.TaskTesting, Description: "do " + id, Dependencies: []string{}}
		if i > 0 {
			task.Dependencies = append(task.Dependencies, ids[i-1])
		}
		p.Tasks = append(p.Tasks, task)
	}
	return p
}

func statuses(result api.RunPlanResult) string {
	words := []string{result.Status}
	for _, t := range result.Tasks {
		words = append(words, t.TaskID+":"+t.Status+":"+t.RequestID)
	}
	return strings.Join(words, " ")
}

// play has all children play turn, and answer as tasks do.
func play(turn func(*supervisortest.Child, protocol.Prompt)) func(*rig, *bridge.Options) {
	return func(r *rig, o *bridge.Options) {
		tasks(r, o)
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Prompt: turn, Command: stateful}
		}
	}
}

func (r *rig) runPlan(p api.RunPlanParams) api.RunPlanResult {
	r.t.Helper()
	result, err := client.Do(r.ctx(), r.client, "", api.RunPlan, p)
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

// A task that ended by a fault around it is done again by the same request, and
// what was done is not.
func TestRunGoesOnAfterFault(t *testing.T) {
	var down atomic.Bool
	var runs atomic.Int32
	for _, tt := range []struct {
		name  string
		fault func(c *supervisortest.Child, p protocol.Prompt)
		kind  string
	}{
		{"a crash", func(c *supervisortest.Child, _ protocol.Prompt) { c.Crash(supervisor.Exit{Code: 1}) }, "CHILD_CRASHED"},
		{"a provider", func(c *supervisortest.Child, p protocol.Prompt) { c.Fail(p, "503 overloaded") }, "EXECUTION_ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			down.Store(true)
			runs.Store(0)
			r := rigged(t, play(func(c *supervisortest.Child, p protocol.Prompt) {
				if strings.Contains(p.Message, "do b") && down.Load() {
					tt.fault(c, p)
					return
				}
				runs.Add(1)
				playTask(c, p)
			}))
			p := api.RunPlanParams{Plan: planOf("a", "b", "c"), RequestID: new("run"), Pool: &api.PlanPool{Size: new(1)}}
			first := r.runPlan(p)
			if got := statuses(first); got != "failed a:success:run/a b:failed:run/b c:skipped:" || !first.Resumable || !first.Tasks[1].Resumable ||
				first.Tasks[1].Error.Type != tt.kind {
				t.Fatalf("got %+v", first)
			}
			down.Store(false)
			second := r.runPlan(p)
			if got := statuses(second); got != "completed a:success:run/a b:success:run/b/2 c:success:run/c" || !second.Resumed || second.Resumable {
				t.Errorf("got %s, %+v", got, second)
			}
			if third := r.runPlan(p); !third.Replayed || runs.Load() != 3 {
				t.Errorf("got %+v after %d turns", third, runs.Load())
			}
		})
	}
}

// What failed by its own work stays so until somebody asks for another try, and
// so does a run that was cancelled.
func TestRunFailedForGood(t *testing.T) {
	var words atomic.Pointer[string]
	r := rigged(t, play(func(c *supervisortest.Child, p protocol.Prompt) {
		if said := *words.Load(); said != "" {
			c.Finish(p, said)
			return
		}
		playTask(c, p)
	}))
	for _, said := range []string{`{"status":"failed","code":"","explanation":"I cannot"}`, "no answer at all"} {
		words.Store(&said)
		p := api.RunPlanParams{Plan: planOf("a", "b")}
		p.RequestID = new(strings.Fields(said)[0][:1] + "un")
		if strings.HasPrefix(said, "{") {
			p.RequestID = new("run")
		}
		if first := r.runPlan(p); first.Status != api.PlanFailed || first.Resumable {
			t.Fatalf("got %+v", first)
		}
		words.Store(new(string))
		if second := r.runPlan(p); !second.Replayed || second.Status != api.PlanFailed {
			t.Errorf("got %+v", second)
		}
		p.Retry = new(true)
		if third := r.runPlan(p); third.Status != api.PlanCompleted || third.Tasks[0].RequestID != *p.RequestID+"/a/2" {
			t.Errorf("got %+v", third)
		}
	}
}

// A worker that is destroyed with its task leaves it to another one.
func TestWorkerDestroyed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		agents *[]string
		want   string
	}{
		{"of a pool", nil, "completed a:success:run/a/2"},
		{"one of two", &[]string{".one", ".two"}, "completed a:success:run/a/2"},
		{"the only one", &[]string{".one"}, "failed a:failed:run/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begun := make(chan string, 3)
			r := rigged(t, play(func(c *supervisortest.Child, p protocol.Prompt) {
				if strings.HasSuffix(p.ID, "/2") {
					playTask(c, p)
					return
				}
				begun <- c.Spec().ID
				supervisortest.UntilAborted(c, p)
			}))
			for _, id := range protocol.Value(tt.agents) {
				r.create(id)
			}
			ended := make(chan api.RunPlanResult, 1)
			go func() {
				result, err := client.Do(r.ctx(), r.client, "", api.RunPlan, api.RunPlanParams{Plan: planOf("a"), RequestID: new("run"), Agents: tt.agents})
				if err != nil {
					t.Error(err)
				}
				ended <- result
			}()
			if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: <-begun}); err != nil {
				t.Fatal(err)
			}
			result := <-ended
			if got := statuses(result); got != tt.want {
				t.Fatalf("got %s, %+v", got, result)
			}
			if e := result.Tasks[0].Error; e != nil && (e.Type != "AGENT_NOT_FOUND" || !result.Resumable) {
				t.Errorf("got %+v", result)
			}
			if left := r.sup.Agents(); len(left) != max(0, len(protocol.Value(tt.agents))-1) {
				t.Errorf("left are %+v", left)
			}
		})
	}
}

// A task whose agent is ended by shutdown is done again by that, three times in all.
func TestWorkerStopped(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stops  int
		agents *[]string
		want   string
	}{
		{"of a pool", 1, nil, "completed a:success:run/a/2"},
		{"one that was named", 2, &[]string{".one"}, "completed a:success:run/a/3"},
		{"each time", 3, &[]string{".one"}, "failed a:failed:run/a/3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begun := make(chan string, 3)
			var turns atomic.Int32
			r := rigged(t, play(func(c *supervisortest.Child, p protocol.Prompt) {
				if int(turns.Add(1)) > tt.stops {
					playTask(c, p)
					return
				}
				begun <- c.Spec().ID
				supervisortest.UntilAborted(c, p)
			}))
			for _, id := range protocol.Value(tt.agents) {
				r.create(id)
			}
			ended := make(chan api.RunPlanResult, 1)
			go func() {
				result, err := client.Do(r.ctx(), r.client, "", api.RunPlan, api.RunPlanParams{Plan: planOf("a"), RequestID: new("run"), Agents: tt.agents})
				if err != nil {
					t.Error(err)
				}
				ended <- result
			}()
			for range tt.stops {
				select {
				case id := <-begun:
					if _, err := client.Do(r.ctx(), r.client, id, api.Shutdown, api.None{}); err != nil {
						t.Fatal(err)
					}
				case result := <-ended:
					t.Fatalf("it ended before: %+v", result)
				}
			}
			result := <-ended
			if got := statuses(result); got != tt.want {
				t.Fatalf("got %s, %+v", got, result)
			}
			if e := result.Tasks[0].Error; e != nil && (e.Type != "AGENT_STOPPED" || !result.Resumable) {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// Nobody can know what the agents of a pool will be called, and no run calls them
// as another did.
func TestPoolNames(t *testing.T) {
	r := rigged(t, tasks)
	p := api.RunPlanParams{Plan: planOf("a"), RequestID: new("run")}
	first := r.runPlan(p).Tasks[0].AgentID
	if err := os.Remove(filepath.Join(r.home, "plans", "run.jsonl")); err != nil {
		t.Fatal(err)
	}
	second := r.runPlan(p).Tasks[0].AgentID
	if first == second || !api.IsTemp(first) || !api.ValidAgentID(first) {
		t.Errorf("got %s and %s", first, second)
	}
}

// What is wrong with a pool is said of pool, and nothing is begun.
func TestBadPools(t *testing.T) {
	r := rigged(t, tasks)
	for pool, want := range map[string]string{
		`{"size":0}`:                  "pool.size: want 1 to 16",
		`{"size":-1}`:                 "pool.size: want 1 to 16",
		`{"size":17}`:                 "pool.size: want 1 to 16",
		`{"size":1.5}`:                "pool.size: must be an integer",
		`{"size":1e99}`:               "pool.size: must be an integer",
		`{"size":"2"}`:                "pool.size: must be an integer",
		`{"sizes":2}`:                 "Unknown parameter: pool.sizes",
		`{"cwd":"work"}`:              "pool.cwd: want an absolute path",
		`{"cwd":"/a\u0000"}`:          "pool.cwd: contains a NUL",
		`{"cwd":5}`:                   "pool.cwd: must be a string",
		`{"preset":"yolo"}`:           "pool.preset: yolo cannot be granted",
		`{"preset":"root"}`:           "pool.preset: yolo cannot be granted",
		`{"preset":"nobody"}`:         "pool.preset: want one of",
		`{"preset":""}`:               "pool.preset: want the name of a preset",
		`{"model":""}`:                "pool.model: is empty",
		`{"model":"none"}`:            "pool.model",
		`{"provider":"\u0001"}`:       "pool.provider: contains a control character",
		`{"system_prompt":"a\u0000"}`: "pool.system_prompt: contains a NUL",
		`{"env":{}}`:                  "Unknown parameter: pool.env",
		`[]`:                          "pool: must be an object",
		`"two"`:                       "pool: must be an object",
	} {
		_, body := r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"run_plan","params":{"request_id":"run","plan":{"tasks":[`+
			`{"id":"a","type":"testing","description":"x"}]},"pool":`+pool+`}}`)
		if !strings.Contains(body, `"code":-32602`) || !strings.Contains(body, want) || !strings.Contains(body, `"INVALID_PARAMS"`) {
			t.Errorf("%s: got %s, want %q", pool, body, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(r.home, "plans", "*")); err != nil || left != nil || len(r.sup.Agents()) > 0 {
		t.Errorf("left are %v (%v), %v", left, err, r.sup.Agents())
	}
}

// A run that was cancelled says so to whoever cancels it again, as a send does.
func TestCancelCancelledRun(t *testing.T) {
	begun := make(chan struct{}, 1)
	r := rigged(t, play(func(c *supervisortest.Child, p protocol.Prompt) {
		begun <- struct{}{}
		supervisortest.UntilAborted(c, p)
	}))
	ended := make(chan api.RunPlanResult, 1)
	p := api.RunPlanParams{Plan: planOf("a", "b"), RequestID: new("run")}
	go func() { ended <- r.runPlan(p) }()
	<-begun
	cancel := func(id string) string {
		_, body := r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"cancel","params":{"request_id":"`+id+`"}}`)
		return body
	}
	for range 2 {
		if body := cancel("run"); !strings.Contains(body, `"cancelled":true`) {
			t.Errorf("got %s", body)
		}
	}
	if result := <-ended; result.Status != api.PlanCancelled || result.Resumable {
		t.Errorf("got %+v", result)
	}
	if result := r.runPlan(p); !result.Replayed || result.Status != api.PlanCancelled {
		t.Errorf("got %+v", result)
	}
	for _, id := range []string{"another", "../plans/run", "", strings.Repeat("x", 200)} {
		if body := cancel(id); !strings.Contains(body, `"cancelled":false`) {
			t.Errorf("%q: got %s", id, body)
		}
	}
}

// A run that has ended is told as a stream too, if that is asked.
func TestReplayedStream(t *testing.T) {
	r := rigged(t, tasks)
	r.runPlan(api.RunPlanParams{Plan: planOf("a"), RequestID: new("run")})
	_, body := r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"run_plan","params":{"request_id":"run","plan":{"tasks":[`+
		`{"id":"a","type":"testing","description":"do a","dependencies":[]}]}}}`, "Accept", "text/event-stream")
	at := 0
	for _, want := range []string{
		"event: plan_start\n", `"tasks":1,"completed":["a"]`, "event: plan_end\n", `"status":"completed"`, "event: response\n", `"replayed":true`,
	} {
		next := strings.Index(body[at:], want)
		if next < 0 {
			t.Fatalf("%q is not there in its order:\n%s", want, body)
		}
		at += next
	}
	if strings.Contains(body, "task_start") {
		t.Errorf("a task is told of that nobody did:\n%s", body)
	}
}

// What is damaged has a name, and what cannot be recorded is not begun.
func TestPlanRecords(t *testing.T) {
	r := rigged(t, tasks)
	plans := filepath.Join(r.home, "plans")
	p := api.RunPlanParams{Plan: planOf("a"), RequestID: new("run")}
	kind := func(err error) string {
		if e, ok := errors.AsType[*client.RPCError](err); ok {
			return e.Data.Type
		}
		return ""
	}
	if err := os.WriteFile(plans, nil, 0o600); err != nil { // no room for directories
		t.Fatal(err)
	}
	_, err := client.Do(r.ctx(), r.client, "", api.RunPlan, p)
	if kind(err) != "NOT_RECORDED" || strings.Contains(err.Error(), r.home) || len(r.sup.Agents()) > 0 {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(plans); err != nil {
		t.Fatal(err)
	}
	if result := r.runPlan(p); result.Status != api.PlanCompleted || result.Resumed {
		t.Errorf("got %+v", result)
	}
	path := filepath.Join(plans, "run.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(`"task_end"`), []byte(`"task_en`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.RunPlan, p); kind(err) != "PLAN_RECORD_DAMAGED" {
		t.Errorf("got %v", err)
	}
	if _, body := r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"cancel","params":{"request_id":"run"}}`); !strings.Contains(body, "PLAN_RECORD_DAMAGED") {
		t.Errorf("got %s", body)
	}
}

// Who has a task done uses that agent.
func TestTaskIsLastUsed(t *testing.T) {
	r := rigged(t, tasks)
	r.save("home/sessions/worker-1.jsonl", []byte(savedText), 1)
	if _, err := client.Do(r.ctx(), r.client, "", api.ExecuteTask, api.ExecuteTaskParams{TaskType: "testing", Prompt: "x", AgentID: new("worker-1")}); err != nil {
		t.Fatal(err)
	}
	list, err := client.Do(r.ctx(), r.client, "", api.ListSessions, api.ListSessionsParams{})
	if err != nil || protocol.Value(list.LastSession) != "worker-1" {
		t.Errorf("the last session is %q, %v", protocol.Value(list.LastSession), err)
	}
}

// Runs are listed and described while they go on, when they have ended, after the end of the
// server, and where their record is damaged.
func TestListRuns(t *testing.T) {
	plans := t.TempDir()
	change := func(r *rig, o *bridge.Options) {
		tasks(r, o)
		o.PlansDir = plans
	}
	r := rigged(t, change)
	run := func(id, prompt string) {
		r.post("/rpc", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"run_plan","params":{"request_id":%q,"on_failure":"continue","pool":{"size":1},"plan":{"tasks":[`+
			`{"id":"b","type":"testing","description":%q},{"id":"a","type":"testing","description":"x"}]}}}`, id, prompt))
	}
	run("good", "x")
	run("bad", "the impossible")
	text, err := os.ReadFile(filepath.Join(plans, "good.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	old := strings.Replace(lines[0], `"plan":`, `"was":`, 1) + strings.Join(lines[1:3], "")
	for name, text := range map[string]string{"cut": strings.Join(lines[:3], ""), "old": old, "damaged": "nonsense\n"} {
		if err := os.WriteFile(filepath.Join(plans, name+".jsonl"), []byte(strings.ReplaceAll(text, `"good/`, `"`+name+"/")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = rigged(t, change)
	_, body := r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"list_runs","params":{}}`)
	got := map[string]string{}
	for _, one := range gjson.Get(body, "result.runs").Array() {
		got[one.Get("plan_run_id").Str] = fmt.Sprint(one.Get("status"), " ", one.Get("tasks_done"), "/", one.Get("tasks"))
	}
	want := map[string]string{"good": "completed 2/2", "bad": "failed 2/2", "cut": "interrupted 1/2", "old": "interrupted 1/0", "damaged": "damaged 0/0"}
	if diff := cmp.Diff(want, got); diff != "" || gjson.Get(body, "result.total").Int() != 5 {
		t.Errorf("%s (-want +got):\n%s", body, diff)
	}
	for id, want := range map[string]string{"good": `"id":"b"`, "bad": `"the impossible"`, "cut": `"plan":{`, "damaged": "PLAN_RECORD_DAMAGED", "../x": "no run of that id"} {
		if _, body := r.post("/rpc", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"get_run","params":{"plan_run_id":%q}}`, id)); !strings.Contains(body, want) {
			t.Errorf("%s: %s", id, body)
		}
	}
	_, body = r.post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"get_run","params":{"plan_run_id":"bad"}}`)
	if order := fmt.Sprint(gjson.Get(body, "result.task_results.#.task_id")); order != `["b","a"]` {
		t.Errorf("the tasks are %s", order)
	}
}
