package bridge_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/plan"
	"nexus.internal/protocol"
	"nexus.internal/supervisor/supervisortest"
)

// runPlanCall is a run of a plan of one task, as a client of any language asks for it.
func runPlanCall(id, prompt string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"run_plan","params":{"request_id":%q,"pool":{"size":1},"plan":{"tasks":[`+
		`{"id":"a","type":"testing","description":%q}]}}}`, id, prompt)
}

// soon is what a channel has within the patience of tests.
func soon[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("%s does not come", what)
	}
	return got
}

// A run has one machine: any other one sends there what is asked of it, by its id, and runs nothing itself.
func TestMachinesRuns(t *testing.T) {
	var mu sync.Mutex
	var dirs []string
	prompts, goesOn := map[string]int{}, make(chan struct{}, 16)
	c, all := clusterOf(t, func(r *rig, o *bridge.Options) {
		play(func(child *supervisortest.Child, p protocol.Prompt) {
			mu.Lock()
			prompts[p.ID]++
			mu.Unlock()
			if strings.Contains(p.Message, "be slow") {
				goesOn <- struct{}{}
				return // until it is cancelled
			}
			playTask(child, p)
		})(r, o)
		o.PlansDir = t.TempDir()
		dirs = append(dirs, o.PlansDir)
	}, "a", "b")
	a, b := all[0], all[1]
	ask := func(r *rig, body string) string {
		t.Helper()
		_, answer := r.post("/rpc", body)
		return answer
	}
	call := func(r *rig, method, params string) string {
		t.Helper()
		return ask(r, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	}
	if got := ask(a, runPlanCall("one", "x")); gjson.Get(got, "result.status").Str != "completed" {
		t.Fatal(got)
	}
	if got := ask(b, runPlanCall("one", "x")); !gjson.Get(got, "result.replayed").Bool() || prompts["one/a"] != 1 {
		t.Errorf("the run of another machine, by its id: %s, asked %d times", got, prompts["one/a"])
	}
	if got := ask(b, runPlanCall("one", "y")); !strings.Contains(got, "REQUEST_ID_CONFLICT") {
		t.Errorf("another plan by the id of a run of another machine: %s", got)
	}
	if got := call(b, "get_run", `{"plan_run_id":"one"}`); gjson.Get(got, "result.task_results.0.status").Str != "success" {
		t.Errorf("what a run of another machine is: %s", got)
	}
	if got := call(b, "get_run", `{"plan_run_id":"none"}`); !strings.Contains(got, "no run of that id") {
		t.Errorf("a run that no machine has: %s", got)
	}
	ask(b, runPlanCall("two", "x"))
	for _, tt := range []struct{ params, want string }{{`{}`, "two b one a 2"}, {`{"offset":1,"limit":1}`, "one a 2"}} {
		got := call(a, "list_runs", tt.params)
		var runs []string
		for _, one := range gjson.Get(got, "result.runs").Array() {
			runs = append(runs, one.Get("plan_run_id").Str+" "+one.Get("node").Str)
		}
		if listed := strings.Join(runs, " ") + " " + gjson.Get(got, "result.total").Raw; listed != tt.want {
			t.Errorf("list_runs %s: %s, want %s", tt.params, got, tt.want)
		}
	}

	// A run that goes on: followed and cancelled from another machine.
	slow := make(chan string, 1)
	go func() { slow <- ask(a, runPlanCall("slow", "be slow")) }() // which is waited for
	soon(t, "the run", goesOn)
	joined := make(chan string, 1)
	go func() { // which is waited for
		_, body := b.do(http.MethodPost, "/rpc", strings.NewReader(runPlanCall("slow", "be slow")), "Accept", "text/event-stream")
		joined <- body
	}()
	if got := call(b, "cancel", `{"request_id":"slow"}`); gjson.Get(got, "result.cancelled").Raw != "true" {
		t.Errorf("cancel of a run of another machine: %s", got)
	}
	if got := soon(t, "the answer", slow); gjson.Get(got, "result.status").Str != "cancelled" {
		t.Errorf("the run: %s", got)
	}
	if got := soon(t, "the stream", joined); !strings.Contains(got, `"method":"plan_end"`) || !strings.Contains(got, `"status":"cancelled"`) {
		t.Errorf("the stream of it: %s", got)
	}
	if got := call(b, "cancel", `{"request_id":"none"}`); gjson.Get(got, "result.cancelled").Raw != "false" {
		t.Errorf("cancel of a run that no machine has: %s", got)
	}

	// What does not begin is nobody's, and neither is what is removed for later ones.
	if got := call(a, "run_plan", `{"request_id":"bad","agents":["nobody"],"plan":{"tasks":[{"id":"a","type":"testing","description":"x"}]}}`); !strings.Contains(got, "AGENT_NOT_FOUND") || c.runOwner("bad") != "" {
		t.Errorf("a run of an agent that is not there: %s, is of %q", got, c.runOwner("bad"))
	}
	ask(b, `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"there"}}`)
	if got := call(a, "run_plan", `{"request_id":"bad","agents":["there"],"plan":{"tasks":[{"id":"a","type":"testing","description":"x"}]}}`); !strings.Contains(got, "INVALID_PARAMS") || !strings.Contains(got, "agent there is on the machine b: ") || c.runOwner("bad") != "" {
		t.Errorf("a run of an agent of another machine: %s, is of %q", got, c.runOwner("bad"))
	}
	old, err := os.ReadFile(filepath.Join(dirs[0], "one.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range plan.Kept {
		if err := os.WriteFile(filepath.Join(dirs[0], fmt.Sprintf("more-%d.jsonl", i)), old, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ask(a, runPlanCall("last", "x"))
	if diff := cmp.Diff([]string{"", "b", "a"}, []string{c.runOwner("one"), c.runOwner("two"), c.runOwner("last")}); diff != "" {
		t.Errorf("the owners of runs (-want +got):\n%s", diff)
	}

	c.cut("a")
	if got := ask(b, runPlanCall("last", "x")); !strings.Contains(got, "NODE_UNREACHABLE") || prompts["last/a"] != 1 {
		t.Errorf("a run of a machine that is lost: %s, asked %d times", got, prompts["last/a"])
	}
	for _, got := range []string{ask(b, runPlanCall("last", "x")), call(b, "get_run", `{"plan_run_id":"last"}`), call(b, "cancel", `{"request_id":"last"}`)} {
		if said := gjson.Get(got, "error.data.details").Str; !strings.HasPrefix(said, "the machine a, which has the run, is not reached, and nothing was accepted: ") {
			t.Errorf("a run of a machine that is lost: %s", got)
		}
	}
	c.mu.Lock()
	c.split = true
	c.mu.Unlock()
	for _, got := range []string{ask(b, runPlanCall("new", "x")), call(b, "get_run", `{"plan_run_id":"new"}`)} {
		if !strings.Contains(got, "NO_QUORUM") {
			t.Errorf("a run that no majority knows of: %s", got)
		}
	}
}
