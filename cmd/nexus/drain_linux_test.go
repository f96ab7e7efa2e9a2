package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"
)

// manyIn has a machine make agents in a directory, and tells each something.
func (s *live) manyIn(cwd string, n int) (agents []string) {
	s.Helper()
	for i := range n {
		agent := fmt.Sprintf("w%d", i)
		s.createIn(agent, cwd)
		s.call("/agent/"+agent, "set_settings", `{"settings":{"max_messages":100000}}`) // what it is told first is in each request, however often it is asked
		if answer := s.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !strings.Contains(answer, "Alice") {
			s.Fatal(answer)
		}
		agents = append(agents, agent)
	}
	return agents
}

// nexus runs a verb of nexus for the server's home.
func (s *live) nexus(args ...string) (stdout string, err error) {
	cmd := exec.Command(filepath.Join(programs, "nexus"), append(args, "--home", s.home)...)
	out, err := cmd.Output()
	return string(out), err
}

// asked counts the sends to each agent that were answered as they should be.
type asked struct {
	again bool // what the machines do not answer for now is sent again, by its request_id
	mu    sync.Mutex
	sends map[string]int
}

// keepAsking sends to each agent in turn until over is closed, and reports each answer that is not as it should be.
func (a *asked) keepAsking(s *live, agents []string, over <-chan struct{}) {
	for {
		for _, agent := range agents {
			select {
			case <-over:
				return
			default:
			}
			ask := fmt.Sprintf(`{"content":"What is my name?","request_id":%q}`, uuid.NewString())
			answer := s.call("/agent/"+agent, "send", ask)
			for asking := time.Now(); a.again && unanswered(answer) && time.Since(asking) < patience; {
				answer = s.call("/agent/"+agent, "send", ask)
			}
			if !strings.Contains(answer, "Your name is Alice.") || gjson.Get(answer, "result.replayed").Bool() && !a.again {
				s.Errorf("%s: %s", agent, answer)
				return
			}
			a.mu.Lock()
			a.sends[agent]++
			a.mu.Unlock()
		}
	}
}

// unanswered reports whether an answer is none, and the same send has one once the machines agree again.
func unanswered(answer string) bool {
	is := gjson.Get(answer, "error.data.type").Str
	return is == "NODE_UNREACHABLE" || is == "NO_QUORUM"
}

// numbers follows the events of an agent by one stream, until one has the word; they are its numbers.
func (s *live) numbers(agent, word string) <-chan []int {
	s.Helper()
	ask, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+"/agent/"+agent+"/events?after=0", http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	ask.Header.Set("Authorization", "Bearer "+s.key)
	events, err := http.DefaultClient.Do(ask)
	if err != nil {
		s.Fatal(err)
	}
	got := make(chan []int, 1)
	go func() { // which the caller waits for
		defer events.Body.Close()
		var all []int
		lines := bufio.NewScanner(events.Body)
		lines.Buffer(nil, 1<<20)
		var id string
		for lines.Scan() {
			if after, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = after
			} else if strings.HasPrefix(lines.Text(), "data: ") { // the id at the beginning is of no event
				n, _ := strconv.Atoi(id) // 0 is out of order
				all = append(all, n)
			}
			if strings.Contains(lines.Text(), word) {
				break
			}
		}
		got <- all
	}()
	return got
}

// While a machine drains, all machines are asked for its agents all the time. No request fails, each turn is there once, and streams of events go on without a
// hole. What is bound to the machine stays, what has a turn is waited for. It drains still after a restart, until that is undone.
func TestClusterDrain(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	agents := b.manyIn(shared, 22)
	b.createIn("worker", shared)
	b.createIn("bound", t.TempDir())
	streams := []<-chan []int{a.numbers("w0", `"turn_end","turn_id":"the-end"`), b.numbers("w0", `"turn_end","turn_id":"the-end"`), c.numbers("w0", `"turn_end","turn_id":"the-end"`)}
	everywhere := []*listener{listen(t, a, "0"), listen(t, b, "0")}
	long := began(t, a, b, "long")

	over := make(chan struct{})
	all := &asked{sends: map[string]int{}}
	var asking sync.WaitGroup
	for _, s := range []*live{a, b, c} {
		asking.Go(func() { all.keepAsking(s, agents, over) })
	}
	if answer := a.call("/", "drain_node", `{"node":"b"}`); !gjson.Get(answer, "result.draining").Bool() || gjson.Get(answer, "result.in_turn").Int() < 1 ||
		gjson.Get(answer, "result.bound_agents.0.agent_id").Str != "bound" {
		t.Errorf("the drain begins: %s", answer)
	}
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b draining, c up")
	}
	eventually(t, "the agents without long turns are elsewhere", func() (none struct{}, err error) {
		answer := c.call("/", "drain_node", `{"node":"b","wait_s":1}`)
		if got := gjson.Get(answer, "result"); got.Get("left").Int() != 1 || got.Get("in_turn").Int() != 1 || got.Get("handed_over").Int() < 22 {
			err = errors.New(answer)
		}
		return none, err
	})
	held := make(chan string, 1)
	go func() { held <- a.call("/agent/worker", "send", `{"content":"My name is Alice","request_id":"held"}`) }()
	drained := make(chan error, 1)
	go func() {
		out, err := c.nexus("cluster", "drain", "b")
		if !strings.Contains(out, "b drains: ") || !strings.Contains(out, "bound") {
			err = errors.Join(err, errors.New(out))
		}
		drained <- err
	}()
	if answer := b.call("/agent/worker", "cancel", `{"request_id":"long"}`); !gjson.Get(answer, "result.cancelled").Bool() {
		t.Errorf("a turn on a machine that drains is not cancelled: %s", answer)
	}
	if answer := <-long; !gjson.Get(answer, "result.cancelled").Bool() {
		t.Errorf("the turn that was cancelled: %s", answer)
	}
	if answer := <-held; !strings.Contains(answer, "Alice") {
		t.Errorf("what was sent behind that turn: %s", answer)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	close(over)
	asking.Wait()

	for _, agent := range append(agents, "worker") {
		if of := a.owner(agent); of == "b" {
			t.Errorf("%s is of b still", agent)
		}
	}
	if of := a.owner("bound"); of != "b" {
		t.Errorf("what is bound to b is of %q", of)
	}
	for _, agent := range agents {
		if got, want := int(gjson.Get(b.call("/agent/"+agent, "get_context", `{}`), "result.message_count").Int()), 2*(all.sends[agent]+1); got != want {
			t.Errorf("%s has %d messages of %d turns", agent, got, want/2)
		}
		if answer := c.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !gjson.Get(answer, "result.replayed").Bool() {
			t.Errorf("what was acknowledged before: %s", answer)
		}
	}
	if answer := b.call("/agent/w0", "send", `{"content":"count to 3","request_id":"the-end"}`); gjson.Get(answer, "error").Exists() {
		t.Error(answer)
	}
	for i, stream := range streams {
		for at, n := range <-stream {
			if n != at+1 {
				t.Errorf("the event %d of the stream at %s has the number %d", at+1, "abc"[i:i+1], n)
				break
			}
		}
	}
	for _, l := range everywhere {
		all := l.until("the last turn of w0 has ended", ended("w0", "the-end", "completed"))
		whole(t, all)
		for _, e := range all {
			if e.data.Get("event.type").Str == "agent_removed" {
				t.Errorf("an agent that was handed over is told of as one that is gone: %s", e.data)
			}
		}
	}
	if answer := b.call("/", "create_agent", `{"agent_id":"placed","place":{}}`); gjson.Get(answer, "error").Exists() || b.owner("placed") == "b" {
		t.Errorf("a new agent is placed on a machine that drains, or nowhere: %s", answer)
	}
	if answer := a.call("/", "create_agent", `{"agent_id":"refused","place":{"node":"b"}}`); gjson.Get(answer, "error.data.type").Str != "TOO_MANY_AGENTS" {
		t.Errorf("a new agent for a machine that drains: %s", answer)
	}

	b.end()
	b.again()
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b draining, c up")
	}
	if out, err := a.nexus("cluster", "drain", "b", "--undo"); err != nil || out != "b takes agents\n" {
		t.Errorf("undo: %q, %v", out, err)
	}
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b up, c up")
	}
	if answer := a.call("/", "create_agent", `{"agent_id":"taken","place":{"node":"b"}}`); gjson.Get(answer, "result.agent_id").Str != "taken" {
		t.Errorf("a new agent after the undo: %s", answer)
	}
	// A label that b is given is known to all, and agents are placed by it.
	if out, err := a.nexus("cluster", "label", "b", "room=large"); err != nil || out != "b: room=large\n" {
		t.Errorf("label: %q, %v", out, err)
	}
	eventually(t, "c knows the label", func() (none struct{}, err error) {
		if answer := c.call("/", "create_agent", `{"agent_id":"large","place":{"labels":{"room":"large"}}}`); gjson.Get(answer, "result.agent_id").Str != "large" {
			err = errors.New(answer)
		}
		return none, err
	})
	if of := c.owner("large"); of != "b" {
		t.Errorf("it is placed on %s", of)
	}
	// The flags of create say where an agent is to be, as place does.
	for name, flags := range map[string][]string{"by-node": {"--node", "b"}, "by-label": {"--label", "room=large"}, "by-near": {"--near", "taken"}} {
		if out, err := c.nexus(append([]string{"create", name, "--cwd", shared}, flags...)...); err != nil || c.owner(name) != "b" {
			t.Errorf("create %q: %s, %v, is of %q", flags, out, err, c.owner(name))
		}
	}
	if out, err := a.nexus("create", "nowhere", "--label", "room=small"); err == nil {
		t.Errorf("an agent on a machine that there is not: %s", out)
	}
	for _, name := range []string{"", "a b"} { // nothing that was mistyped is taken for done
		if out, err := c.nexus("label", "b", name+"-"); err == nil {
			t.Errorf("a label %q, which none can be, is taken away: %s", name, out)
		}
		if answer := c.call("/", "label_node", fmt.Sprintf(`{"node":"b","remove":["room",%q]}`, name)); !strings.Contains(answer, "Invalid parameter remove[1]: ") {
			t.Errorf("label_node: %s", answer)
		}
	}
	if out, err := c.nexus("cluster", "label", "b", "room-"); err != nil || out != "b: -\n" {
		t.Errorf("no label: %q, %v", out, err)
	}
	c.end()
	b.end()
	a.end()
}

// A machine that is killed while it hands over its agents loses none of them: each is of one machine, with all that was acknowledged.
func TestClusterDrainKilled(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	n := 20
	if testing.Short() {
		n = 6
	}
	agents := b.manyIn(shared, n)
	if answer := a.call("/", "drain_node", `{"node":"b"}`); !gjson.Get(answer, "result.draining").Bool() {
		t.Fatal(answer)
	}
	eventually(t, "an agent is handed over", func() (none struct{}, err error) {
		if answer := b.call("/", "drain_node", `{}`); gjson.Get(answer, "result.handed_over").Int() < 1 {
			err = errors.New(answer)
		}
		return none, err
	})
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.cmd.Wait() // that it was killed
	for _, agent := range agents {
		untilMoved(t, a, agent)
		eventually(t, "c says what was acknowledged", func() (none struct{}, err error) { // it may have learnt of claims by the machine that is gone
			if answer := c.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !gjson.Get(answer, "result.replayed").Bool() {
				err = errors.New(answer)
			}
			return none, err
		})
	}
	b.again()
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b draining, c up")
	}
	for _, agent := range agents {
		untilMoved(t, b, agent)
		if of := b.owner(agent); of == "b" {
			t.Errorf("%s is of b", agent)
		}
	}
	c.end()
	b.end()
	a.end()
}
