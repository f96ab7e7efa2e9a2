package main_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
)

// listener is a client of GET /events that keeps what it was told.
type listener struct {
	t     *testing.T
	leave func() // and waits until nothing more is added

	mu   sync.Mutex
	all  []heardEvent
	ends error // the stream has ended
}

// heardEvent is an event, and the position after it.
type heardEvent struct {
	id   string
	data gjson.Result
}

// listen opens the stream of all agents of a machine, after a position.
func listen(t *testing.T, s *live, after string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	ask.Header.Set("Authorization", "Bearer "+s.key)
	ask.Header.Set("Last-Event-ID", after)
	response, err := http.DefaultClient.Do(ask)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	l := &listener{t: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		var id string
		for lines.Scan() {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "id":
				id = value
			case "data":
				l.mu.Lock()
				l.all = append(l.all, heardEvent{id, gjson.Parse(value)})
				l.mu.Unlock()
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ends = errors.Join(errors.New("the stream has ended"), lines.Err())
	}()
	l.leave = func() {
		cancel()
		<-ended
	}
	t.Cleanup(l.leave)
	return l
}

// heard are the events so far.
func (l *listener) heard() ([]heardEvent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]heardEvent(nil), l.all...), l.ends
}

// until waits for an event, and returns all up to it.
func (l *listener) until(what string, is func(e gjson.Result) bool) []heardEvent {
	l.t.Helper()
	return eventually(l.t, what, func() ([]heardEvent, error) {
		all, err := l.heard()
		for i, e := range all {
			if is(e.data) {
				return all[:i+1], nil
			}
		}
		return nil, errors.Join(fmt.Errorf("%d events", len(all)), err)
	})
}

// ended is the end of a turn of an agent.
func ended(agent, request, outcome string) func(gjson.Result) bool {
	return func(e gjson.Result) bool {
		return e.Get("agent_id").Str == agent && e.Get("event.type").Str == "turn_end" && e.Get("event.turn_id").Str == request && e.Get("event.outcome").Str == outcome
	}
}

func nodeState(node, state string) func(gjson.Result) bool {
	return func(e gjson.Result) bool {
		return e.Get("type").Str == "node_state" && e.Get("node").Str == node && e.Get("state").Str == state
	}
}

// whole checks that the events of each agent are told from the first on, in order and each once: what is not there is a gap. It returns the numbers of
// the last ones.
func whole(t *testing.T, all []heardEvent) map[string]uint64 {
	t.Helper()
	last := map[string]uint64{}
	for _, e := range all {
		agent, seq := e.data.Get("agent_id").Str, e.data.Get("seq").Uint()
		if seq == 0 {
			continue
		}
		from := seq
		if e.data.Get("event.type").Str == "gap" {
			from = e.data.Get("event.from").Uint()
		}
		if from != last[agent]+1 {
			t.Errorf("of %s, %d comes after %d: %s", agent, from, last[agent], e.data)
		}
		last[agent] = seq
	}
	return last
}

// A stream of all agents goes on while a machine is killed in the midst of a turn, and from any position at any other machine: no event is missing,
// and none comes twice. The agent goes on with its numbers at the machine that takes it over.
func TestClusterEvents(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	a.createIn("of-a", shared)
	b.createIn("of-b", shared)
	c.createIn("of-c", shared)
	b.createIn("worker", shared)
	l := listen(t, a, "0")
	for _, agent := range []string{"of-a", "of-b", "of-c", "worker"} {
		if answer := c.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
		l.until("the turn of "+agent+" has ended", ended(agent, "first", "completed"))
	}
	asked := began(t, c, b, "cut")
	began := l.until("the turn is told of", func(e gjson.Result) bool {
		return e.Get("event.turn_id").Str == "cut" && e.Get("event.type").Str == "turn_start"
	})
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-asked
	_ = b.cmd.Wait() // that it was killed
	l.until("the machine is lost", nodeState("b", "lost"))
	untilMoved(t, c, "worker")
	untilMoved(t, c, "of-b")
	l.until("the turn has crashed", ended("worker", "cut", "crashed"))
	if from := gjson.Get(a.call("/", "list_agents", `{}`), "result.agents.#(agent_id==worker).taken_over_from").Str; from != "b" {
		t.Errorf("list_agents says that it was taken over from %q", from)
	}
	if answer := a.call("/agent/worker", "send", `{"content":"My name is Bob","request_id":"second"}`); !strings.Contains(answer, "Bob") {
		t.Fatal(answer)
	}
	all := l.until("the agent goes on", ended("worker", "second", "completed"))
	if why := started(all, "worker"); why != "taken over from the machine b, which was lost" {
		t.Errorf("the first state of an agent that was taken over says %q", why)
	}
	last := whole(t, all)
	if len(last) != 4 {
		t.Errorf("told of %v", last)
	}
	// Others go on from before it was killed, while it was gone, and from now, at another machine.
	lost := l.until("the machine is lost", nodeState("b", "lost"))
	for _, from := range [][]heardEvent{began[:2], began, lost, all} {
		other := listen(t, c, from[len(from)-1].id)
		rest := other.until("the stream begins", func(e gjson.Result) bool { return e.Get("type").Str == "open" })
		if len(from) < len(all) {
			rest = other.until("the agent goes on", ended("worker", "second", "completed"))
		}
		if got := whole(t, append(append([]heardEvent(nil), from...), rest...)); got["worker"] != last["worker"] {
			t.Errorf("after %d events: %v, want %v", len(from), got, last)
		}
		other.leave()
	}
	b.again()
	l.until("the machine is back", nodeState("b", "up"))
	b.untilNodes("a up, b up, c up")
	b.createIn("new", shared)
	if answer := c.call("/agent/new", "send", `{"content":"My name is Alice","request_id":"third"}`); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	all = l.until("an agent of the machine that is back", ended("new", "third", "completed"))
	whole(t, all)
	l.leave()
	c.end()
	b.end()
	a.end()
}

// started is why an agent was started last, as its state says.
func started(all []heardEvent, agent string) (why string) {
	for _, e := range all {
		if e.data.Get("agent_id").Str == agent && e.data.Get("event.state").Str == "starting" {
			why = e.data.Get("event.reason").Str
		}
	}
	return why
}
