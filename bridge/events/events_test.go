package events_test

import (
	"fmt"
	"iter"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
)

// One stream has the events of all agents, each whole and in its order; those of
// an agent that is created later from its first on; and it says who was removed.
func TestAllEvents(t *testing.T) {
	h := newHouse(t)
	h.create("a")
	h.say("a", "before")
	next, leave := h.listen("", "", "")
	defer leave()
	if e := next(); e.name != "open" || !strings.Contains(e.id, ",a:") {
		t.Fatalf("the first event is %+v", e)
	}
	h.create("b")
	h.say("b", "one")
	h.say("a", "two")
	var texts []string
	last := map[string]uint64{}
	for _, e := range until(next, "turn_end", 2) {
		if last[e.agent] != 0 && e.seq != last[e.agent]+1 || last[e.agent] == 0 && e.agent == "b" && e.seq != 1 {
			t.Errorf("number %d of %s comes after %d", e.seq, e.agent, last[e.agent])
		}
		last[e.agent] = e.seq
		if e.name == "message_update" {
			texts = append(texts, e.agent+" "+e.event)
		}
	}
	slices.Sort(texts)
	frame := `{"type":"message_update","event":{"type":"text_delta","delta":"%s"}}`
	want := []string{"a " + fmt.Sprintf(frame, "two"), "b " + fmt.Sprintf(frame, "one")}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := h.sup.Remove(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	removed := until(next, "agent_removed", 1)
	if e := removed[len(removed)-1]; e.agent != "b" || strings.Contains(e.id, "b:") {
		t.Errorf("got %+v", e)
	}
	h.create("b") // another one, whose numbers begin anew
	if e := next(); e.agent != "b" || e.seq != 1 {
		t.Errorf("the new one begins with %+v", e)
	}
}

// Whoever goes on from an id misses nothing and gets nothing twice, of any agent,
// also of one that came meanwhile, wherever the stream was cut.
func TestAllEventsResume(t *testing.T) {
	h := newHouse(t)
	for _, id := range []string{"a", "b", "c"} {
		h.create(id)
		h.say(id, "hello "+id)
	}
	next, leave := h.listen("", "after=0", "")
	whole := until(next, "turn_end", 3)
	leave()
	count := func(events []told) map[string]uint64 {
		n := map[string]uint64{}
		for _, e := range events {
			if e.agent == "" {
				continue
			}
			if n[e.agent]++; e.seq != n[e.agent] {
				t.Errorf("%s: number %d is in the place of %d", e.agent, e.seq, n[e.agent])
			}
		}
		return n
	}
	want := count(whole)
	for cut := 1; cut < len(whole); cut += 4 {
		ends := 0
		for _, e := range whole[:cut] {
			if e.name == "turn_end" {
				ends++
			}
		}
		next, leave := h.listen("", "", whole[cut-1].id)
		if e := next(); e.name != "open" || e.id != whole[cut-1].id {
			t.Errorf("it goes on from %q with %+v", whole[cut-1].id, e)
		}
		rest := until(next, "turn_end", 3-ends)
		leave()
		if diff := cmp.Diff(want, count(append(slices.Clone(whole[:cut]), rest...))); diff != "" {
			t.Errorf("cut after %d: -want +got:\n%s", cut, diff)
		}
	}

	// d is created and a goes on while nobody listens.
	from := whole[len(whole)-1].id
	h.create("d")
	h.say("d", "new")
	h.say("a", "more")
	next, leave = h.listen("", "", from)
	defer leave()
	next()
	seen := map[string]uint64{}
	for _, e := range until(next, "turn_end", 2) {
		if seen[e.agent] == 0 {
			seen[e.agent] = e.seq
		}
	}
	if seen["d"] != 1 || seen["a"] != want["a"]+1 || len(seen) != 2 {
		t.Errorf("after %s comes %v, want 1 of d and %d of a", from, seen, want["a"]+1)
	}
}

// An agent of an earlier server that starts while its stored events are read was not removed,
// and what its start brings comes once.
func TestResumeWhileAnAgentStarts(t *testing.T) {
	h := newHouse(t)
	h.create("c")
	h.say("c", "hello")
	next, leave := h.listen("", "after=0", "")
	all := until(next, "turn_end", 1)
	leave()
	seen := all[len(all)-1]

	h = newHouse(t)
	h.last = seen.seq
	start := sync.OnceFunc(func() { h.create("c") })
	h.stored = func(id string, after uint64) iter.Seq2[supervisor.Event, error] {
		return func(yield func(supervisor.Event, error) bool) {
			start()
			if e := (protocol.AgentState{State: "starting"}); after <= seen.seq {
				yield(supervisor.Event{Seq: seen.seq + 1, Type: e.Name(), Data: protocol.EncodeEvent(e)}, nil)
			}
		}
	}
	next, leave = h.listen("", "", seen.id)
	defer leave()
	if e := next(); e.name != "open" {
		t.Fatalf("got %+v", e)
	}
	first := next()
	h.say("c", "again")
	for i, e := range append([]told{first}, until(next, "turn_end", 1)...) {
		if e.name == "agent_removed" || e.seq != seen.seq+1+uint64(i) {
			t.Errorf("after %d comes %+v", seen.seq+uint64(i), e)
		}
	}
}

// A filter leaves out events and numbers nothing anew.
func TestEventFilters(t *testing.T) {
	h := newHouse(t)
	h.create("a")
	h.create("b")
	h.say("a", "one")
	h.say("b", "two")
	next, leave := h.listen("", "after=0&agents=b,nobody&types=turn_start,turn_end", "")
	defer leave()
	if e := next(); !strings.HasSuffix(e.id, ",b:0") {
		t.Errorf("it begins with %+v", e)
	}
	var names []string
	for _, e := range until(next, "turn_end", 1) {
		names = append(names, e.agent+" "+e.name)
	}
	if diff := cmp.Diff([]string{"b turn_start", "b turn_end"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	a, leaveA := h.listen("a", "after=0&types=turn_end", "")
	defer leaveA()
	agent, err := h.sup.Agent("a")
	if err != nil {
		t.Fatal(err)
	}
	sub, err := agent.Subscribe(0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	var last supervisor.Event
	for last.Type != "turn_end" {
		batch, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(batch, func(e supervisor.Event) bool { return e.Type == "turn_end" }); i >= 0 {
			last = batch[i]
		}
	}
	if e := a(); e.id != fmt.Sprint(last.Seq) {
		t.Errorf("the first of a filtered stream is %+v, want number %d", e, last.Seq)
	}
	for _, query := range []string{"types=", "agents=a,,b", "agents=../a", "after=x", "after=a:1,a:2", "after=a:-1"} {
		refused, _ := h.streams.Serve(t.Context(), request("", query, ""), nil)
		if refused == nil || refused.Status != http.StatusBadRequest || refused.Err.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: %+v", query, refused)
		}
	}
}

// The id of a stream of one agent's events tells a key for that agent nothing of how
// many other agents there were, and another server's goes on with a gap.
func TestAttackCountAgentsByEventID(t *testing.T) {
	opaque := regexp.MustCompile(`^\*:[0-9a-f]{32}$`)
	h, other := newHouse(t), newHouse(t)
	id := func(h *house, after string) (string, bool) {
		next, leave := h.listen("", "agents=a", after)
		defer leave()
		e := next()
		if e.name != "open" {
			t.Fatalf("the first event is %+v", e)
		}
		return e.id, e.gap
	}
	first, _ := id(h, "")
	elsewhere, _ := id(other, "")
	h.create("b")
	second, gap := id(h, first)
	if gap {
		t.Error("its own id goes on with a gap")
	}
	third, _ := id(h, "")
	if !opaque.MatchString(first) || !opaque.MatchString(second) || first == third || first == elsewhere {
		t.Errorf("the ids %s, %s, %s and of another server %s", first, second, third, elsewhere)
	}
	for _, after := range []string{elsewhere, "*:7"} {
		if _, gap := id(h, after); !gap {
			t.Errorf("after %s of another server there is no gap", after)
		}
	}
	for _, after := range []string{"*:", "*:x", "*:" + strings.Repeat("0", 33)} {
		if refused, _ := h.streams.Serve(t.Context(), request("", "after="+after, ""), nil); refused == nil {
			t.Errorf("after %s: no refusal", after)
		}
	}
}
