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

	"github.com/go-json-experiment/json"
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

// namedRunCall is a run of a plan of two tasks by named agents.
func namedRunCall(id string, agents ...string) string {
	named, _ := json.Marshal(agents) // of strings
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"run_plan","params":{"request_id":%q,"agents":%s,"plan":{"tasks":[`+
		`{"id":"a","type":"testing","description":"x"},{"id":"b","type":"testing","description":"y","dependencies":["a"]}]}}}`, id, named)
}

// A run whose agents are all on another machine is carried out there, whichever machine is asked; also one that was begun on this machine, and whose agents another
// one has taken over since: it could go on nowhere.
func TestMachinesRunsFollowTheirAgents(t *testing.T) {
	var mu sync.Mutex
	prompts, dirs := map[string]int{}, []string{}
	c, all := clusterOf(t, func(r *rig, o *bridge.Options) {
		play(func(child *supervisortest.Child, p protocol.Prompt) {
			mu.Lock()
			prompts[p.ID]++
			mu.Unlock()
			playTask(child, p)
		})(r, o)
		o.PlansDir = t.TempDir()
		dirs = append(dirs, o.PlansDir)
	}, "a", "b", "c")
	a, b, d := all[0], all[1], all[2]
	ask := func(r *rig, body string) string {
		t.Helper()
		_, answer := r.post("/rpc", body)
		return answer
	}
	for agent, r := range map[string]*rig{"one": b, "two": b, "third": d, "mover": a} {
		if got := ask(r, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":%q}}`, agent)); gjson.Get(got, "result.agent_id").Str != agent {
			t.Fatal(got)
		}
	}
	completed := func(what, got string) {
		t.Helper()
		if gjson.Get(got, "result.status").Str != "completed" {
			t.Errorf("%s: %s", what, got)
		}
	}
	completed("a run of agents of another machine", ask(a, namedRunCall("new", "one", "two")))
	if c.runOwner("new") != "b" {
		t.Errorf("it is of %q", c.runOwner("new"))
	}
	completed("the same of a third one", ask(d, namedRunCall("new", "one", "two")))
	_, streamed := a.do(http.MethodPost, "/rpc", strings.NewReader(namedRunCall("streamed", "one")), "Accept", "text/event-stream")
	if !strings.Contains(streamed, `"method":"plan_end"`) || c.runOwner("streamed") != "b" {
		t.Errorf("a stream of a run of agents of another machine: %s", streamed)
	}
	got := ask(a, namedRunCall("several", "one", "third"))
	if !strings.Contains(got, "INVALID_PARAMS") || !strings.Contains(got, "one is on the machine b, third is on the machine c: ") || !strings.Contains(got, "cluster drain") || c.runOwner("several") != "" {
		t.Errorf("a run of agents of several machines: %s, is of %q", got, c.runOwner("several"))
	}
	if got := ask(a, namedRunCall("nobody", "none")); !strings.Contains(got, "AGENT_NOT_FOUND") || c.runOwner("nobody") != "" {
		t.Errorf("a run of an agent that is not there: %s", got)
	}

	// One that was cut off in its second task, and whose agent another machine has by now.
	cutOff := func(id string) {
		t.Helper()
		completed("the run", ask(a, namedRunCall(id, "mover")))
		path := filepath.Join(dirs[0], id+".jsonl")
		record, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(record), "\n")
		if err := os.WriteFile(path, []byte(strings.Join(lines[:4], "")), 0o600); err != nil { // plan, start and end of a, start of b
			t.Fatal(err)
		}
	}
	cutOff("moved")
	cutOff("other")
	ask(a, `{"jsonrpc":"2.0","id":1,"method":"destroy_agent","params":{"agent_id":"mover"}}`)
	ask(a, `{"jsonrpc":"2.0","id":1,"method":"delete_session","params":{"session_name":"mover"}}`)
	if got := ask(b, `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"mover"}}`); gjson.Get(got, "result.agent_id").Str != "mover" {
		t.Fatal(got)
	}
	c.cut("b")
	if got := ask(a, namedRunCall("moved", "mover")); !strings.Contains(got, "NODE_UNREACHABLE") || !strings.Contains(got, "the machine b, which has the agents, is not reached, and nothing was accepted") || c.runOwner("moved") != "a" {
		t.Errorf("while that machine is lost: %s, is of %q", got, c.runOwner("moved"))
	}
	c.mend("b")
	for id, r := range map[string]*rig{"moved": a, "other": d} { // asked at the machine that has the run, and at one that has nothing of it
		got := ask(r, namedRunCall(id, "mover"))
		completed("a run whose agents have moved", got)
		if !gjson.Get(got, "result.resumed").Bool() || prompts[id+"/a"] != 1 || prompts[id+"/b"] != 2 || c.runOwner(id) != "b" {
			t.Errorf("it did not go on where it was: %s, asked %v times, is of %q", got, prompts, c.runOwner(id))
		}
		if _, err := os.Lstat(filepath.Join(dirs[0], id+".jsonl")); !os.IsNotExist(err) {
			t.Errorf("the record that was handed over: %v", err)
		}
		got = ask(a, `{"jsonrpc":"2.0","id":1,"method":"get_run","params":{"plan_run_id":"`+id+`"}}`)
		if gjson.Get(got, "result.status").Str != "completed" {
			t.Errorf("get_run: %s", got)
		}
	}
}
