package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// A run whose agents are on another machine is carried out there; and one whose machine was killed in a task, so that another one has taken its agent over, goes on
// there once its own machine is back, whichever is asked: it was refused by all, and stayed interrupted.
func TestClusterRunFollowsItsAgents(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	a.createIn("worker", shared)
	if answer := a.send("worker", "My name is Alice"); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	run := func(id string) string {
		return fmt.Sprintf(`{"request_id":%q,"agents":["worker"],"plan":{"tasks":[{"id":"x","type":"testing","description":"x"},{"id":"y","type":"testing","description":"y","dependencies":["x"]}]}}`, id)
	}
	machineOf := func(s *live, id string) (nodes string) {
		for _, one := range gjson.Get(s.call("/", "list_runs", `{}`), fmt.Sprintf("result.runs.#(plan_run_id==%q)#.node", id)).Array() {
			nodes += one.Str
		}
		return nodes
	}
	c.untilOwner("worker", "a")
	if answer := c.call("/", "run_plan", run("first")); gjson.Get(answer, "result.status").Str != "completed" || machineOf(b, "first") != "a" {
		t.Errorf("a run of an agent of another machine, at %s: %s", machineOf(b, "first"), answer)
	}

	counting := a.sendAsync("worker", "count to 100000")
	eventually(t, "the agent counts", func() (none struct{}, err error) { return none, a.busy("worker") })
	asked := make(chan string, 1)
	header := http.Header{"Authorization": {"Bearer " + a.key}}
	go func() { // which ends with the server
		_, answer, _ := request(http.MethodPost, a.url+"/", header, `{"jsonrpc":"2.0","id":1,"method":"run_plan","params":`+run("cut")+`}`)
		asked <- answer
	}()
	eventually(t, "the run has begun its first task", func() (none struct{}, err error) {
		record, err := os.ReadFile(filepath.Join(a.home, "plans", "cut.jsonl"))
		if err == nil && !strings.Contains(string(record), `"task_start"`) {
			err = errors.New(string(record))
		}
		return none, err
	})
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.cmd.Wait() // that it was killed
	<-counting
	<-asked
	untilMoved(t, b, "worker")
	if answer := b.call("/", "run_plan", run("cut")); gjson.Get(answer, "error.data.type").Str != "NODE_UNREACHABLE" {
		t.Errorf("while the machine of the run is lost: %s", answer)
	}
	a.again()
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b up, c up")
	}
	eventually(t, "the run goes on", func() (none struct{}, err error) { // a connection of before may be silent for 15 s
		if answer := c.call("/", "run_plan", run("cut")); gjson.Get(answer, "result.status").Str != "completed" {
			err = errors.New(answer)
		}
		return none, err
	})
	for _, s := range []*live{c, a, b} {
		if answer := s.call("/", "run_plan", run("cut")); !gjson.Get(answer, "result.replayed").Bool() {
			t.Errorf("the run is done again: %s", answer)
		}
		if got, want := machineOf(s, "cut"), s.owner("worker"); got != want || got == "a" {
			t.Errorf("the run is at %q, the agent at %q", got, want)
		}
	}

	// Agents of several machines: what the error says to do about it is enough.
	a.createIn("other", shared)
	of := a.owner("worker")
	eventually(t, "c knows both agents", func() (none struct{}, err error) { // it may not know of the new one yet
		if answer := c.call("/", "run_plan", strings.Replace(run("both"), `"worker"`, `"worker","other"`, 1)); !strings.Contains(answer, "worker is on the machine "+of+", other is on the machine a: ") {
			err = errors.New(answer)
		}
		return none, err
	})
	for _, machine := range []string{"a", "b", "c"} {
		if machine != of {
			if out, err := b.nexus("cluster", "drain", machine); err != nil {
				t.Errorf("drain %s: %s, %v", machine, out, err)
			}
		}
	}
	eventually(t, "the run of both agents is carried out", func() (none struct{}, err error) {
		if answer := c.call("/", "run_plan", strings.Replace(run("both"), `"worker"`, `"worker","other"`, 1)); gjson.Get(answer, "result.status").Str != "completed" {
			err = errors.New(answer)
		}
		return none, err
	})
	a.end()
	b.end()
	c.end()
}
