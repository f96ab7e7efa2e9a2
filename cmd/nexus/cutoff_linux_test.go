package main_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// freeze stops the server of a machine and its engine, which go on with resume.
func (s *live) freeze() (resume func()) {
	s.Helper()
	engine, err := s.engine()
	if err != nil {
		s.Fatal(err)
	}
	signal := func(sig syscall.Signal, pids ...int) {
		for _, pid := range pids {
			if err := syscall.Kill(pid, sig); err != nil {
				s.Error(err)
			}
		}
	}
	signal(syscall.SIGSTOP, s.cmd.Process.Pid, engine)
	return func() { signal(syscall.SIGCONT, engine, s.cmd.Process.Pid) }
}

// asked is an answer to a call, and since when it may be old as it says.
func (s *live) asked(path, method, params string) (stale, answer string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url+path, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response.Header.Get("X-Nexus-Stale"), string(body)
}

// One of three machines, whose others stand still, answers what only reads with what it has, and says since when that may be old. It accepts
// nothing. When the others are back, all is as before.
func TestClusterMinority(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	a.createIn("worker", shared)
	if answer := a.send("worker", "My name is Alice"); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	if stale, answer := a.asked("/agent/worker", "get_messages", `{}`); stale != "" || !strings.Contains(answer, "Alice") {
		t.Errorf("with all machines: stale %q, %s", stale, answer)
	}
	cut := time.Now()
	resumeB, resumeC := b.freeze(), c.freeze()
	resume := func() { resumeB(); resumeC() }
	defer func() { resume() }()
	eventually(t, "the machine knows that it is cut off", func() (none struct{}, err error) {
		if stale, _ := a.asked("/", "list_agents", `{}`); stale == "" {
			err = errors.New("its answer has no mark")
		}
		return none, err
	})
	stale, answer := a.asked("/agent/worker", "get_messages", `{}`)
	since, err := time.Parse(time.RFC3339, stale)
	if err != nil || since.Before(cut.Add(-time.Minute)) || since.After(time.Now()) || !strings.Contains(answer, "Alice") {
		t.Errorf("what the machine has, as of %q: %s", stale, answer)
	}
	for path, calls := range map[string][][2]string{
		"/":             {{"create_agent", `{"agent_id":"late"}`}, {"clone_session", `{"src_session":"worker","dest_session":"copy"}`}, {"create_key", `{"scope":"read"}`}, {"run_plan", `{"tasks":[{"task_id":"t","description":"d"}]}`}},
		"/agent/worker": {{"send", `{"content":"My name is Bob","request_id":"cut"}`}, {"set_permissions", `{"preset":"sandboxed"}`}, {"new_session", `{}`}},
	} {
		for _, call := range calls {
			if stale, answer := a.asked(path, call[0], call[1]); stale == "" || gjson.Get(answer, "error.data.type").Str != "NO_QUORUM" {
				t.Errorf("%s of a machine that is cut off: stale %q, %s", call[0], stale, answer)
			}
		}
	}
	resume()
	resume = func() {}
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b up, c up")
		untilMoved(t, s, "worker")
	}
	if stale, answer := a.asked("/agent/worker", "send", `{"content":"What is my name?","request_id":"cut"}`); stale != "" || !strings.Contains(answer, "Your name is Alice.") || gjson.Get(answer, "result.replayed").Bool() {
		t.Errorf("with all machines again: stale %q, %s", stale, answer)
	}
	if answer := a.call("/", "list_agents", `{}`); gjson.Get(answer, "result.agents.#").Int() != 1 {
		t.Errorf("agents that a machine has made which was cut off: %s", answer)
	}
	c.end()
	b.end()
	a.end()
}

// A machine stands still while another one has a turn for a client of it. When it goes on, what it did not hear meanwhile says nothing of the others: the
// client gets the answer.
func TestClusterStoodStill(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	b.createIn("worker", shared)
	answer := began(t, a, b, "long")
	resume := a.freeze()
	eventually(t, "b has not heard of a for long", func() (none struct{}, err error) {
		heard, err := time.Parse(time.RFC3339, gjson.Get(b.call("/", "list_nodes", `{}`), "result.nodes.#(node==a).last_heard").Str)
		if err == nil && time.Since(heard) < 8*time.Second {
			err = errors.New("it has")
		}
		return none, err
	})
	resume()
	a.untilNodes("a up, b up, c up")
	if answer := b.call("/agent/worker", "cancel", `{"request_id":"long"}`); !gjson.Get(answer, "result.cancelled").Bool() {
		t.Errorf("the turn is not cancelled: %s", answer)
	}
	if answer := <-answer; !gjson.Get(answer, "result.cancelled").Bool() {
		t.Errorf("what the client of the machine that stood still is told: %s", answer)
	}
	c.end()
	b.end()
	a.end()
	isNotServedAlone(t, b)
}
