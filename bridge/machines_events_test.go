package bridge_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
	"nexus.internal/supervisor/supervisortest"
)

// keeps has a server keep its agents' records on disk.
func keeps(t *testing.T) func(*rig, *bridge.Options) {
	return func(r *rig, o *bridge.Options) {
		var kept *store.Local = sessions.Local(r.home, false, nil)
		t.Cleanup(kept.Close)
		plays(supervisortest.Echo)(r, o)
		r.records = func(id string) (supervisor.Records, error) { return kept.Open(id, false) }
		o.Store = withHistory{o.Store, kept}
	}
}

// numbered checks that the events of each agent are told in order, each once, and returns the last number of each.
func numbered(t *testing.T, all []told) map[string]uint64 {
	t.Helper()
	last := map[string]uint64{}
	for _, e := range all {
		if e.seq == 0 {
			continue
		}
		if e.seq != last[e.agent]+1 {
			t.Errorf("number %d of %s comes after %d: %+v", e.seq, e.agent, last[e.agent], e)
		}
		last[e.agent] = e.seq
	}
	return last
}

// A stream of all agents has those of all machines, whichever is asked, and goes on at any of them from any of its ids.
func TestMachinesEvents(t *testing.T) {
	_, all := clusterOf(t, keeps(t), "a", "b", "c")
	for i, r := range all {
		r.create(fmt.Sprintf("early-%d", i))
	}
	next, leave := all[0].listen("?after=0", "")
	defer leave()
	open := next()
	if open.name != "open" || open.gap || strings.Count(open.id, "*") != 3 || strings.Count(open.id, "early") != 3 {
		t.Fatalf("the first event is %+v", open)
	}
	for i, r := range all {
		r.say(fmt.Sprintf("early-%d", i), "hello")
		r.create(fmt.Sprintf("late-%d", i))
		r.say(fmt.Sprintf("late-%d", i), "hello")
	}
	whole := until(next, "turn_end", 6)
	want := numbered(t, whole)
	if len(want) != 6 {
		t.Errorf("told of %v", want)
	}
	all[1].destroy("late-1")
	removed := until(next, "agent_removed", 1)
	if e := removed[len(removed)-1]; e.agent != "late-1" || strings.Contains(e.id, "late-1") {
		t.Errorf("the end of an agent is %+v", e)
	}
	for cut := 0; cut < len(whole)-1; cut += 5 {
		ends := 0
		for _, e := range whole[:cut+1] {
			if e.name == "turn_end" {
				ends++
			}
		}
		next, leave := all[cut%3].listen("", whole[cut].id)
		if e := next(); e.name != "open" || e.gap {
			t.Errorf("it goes on from %s with %+v", whole[cut].id, e)
		}
		rest := until(next, "turn_end", 6-ends)
		leave()
		got := numbered(t, append(append([]told{}, whole[:cut+1]...), rest...))
		for id, last := range want {
			if got[id] < last && id != "late-1" {
				t.Errorf("cut after %d: %s ends at %d, want %d", cut, id, got[id], last)
			}
		}
	}
	next, leave = all[2].listen("?agents=early-0&types=turn_end", "")
	defer leave()
	next()
	for i, r := range all {
		r.say(fmt.Sprintf("early-%d", i), "more")
	}
	all[0].say("early-0", "more")
	for range 2 {
		if e := next(); e.agent != "early-0" || e.name != "turn_end" {
			t.Errorf("with a filter: %+v", e)
		}
	}
}

// A machine that is cut off is told of; its agents' events go on, each once, when it is back. What another one has meanwhile is not held up.
func TestMachinesEventsCut(t *testing.T) {
	c, all := clusterOf(t, keeps(t), "a", "b", "c")
	a, b := all[0], all[1]
	b.create("x")
	a.create("y")
	next, leave := a.listen("?after=0", "")
	defer leave()
	b.say("x", "one")
	whole := until(next, "turn_end", 1)
	c.cut("b")
	state := until(next, "node_state", 1)
	whole = append(whole, state...)
	b.say("x", "two")
	a.say("y", "one")
	whole = append(whole, until(next, "turn_end", 1)...)
	if e := whole[len(whole)-1]; e.agent != "y" {
		t.Errorf("of a machine that is cut off: %+v", e)
	}
	lost := whole[len(whole)-1].id
	c.mend("b")
	whole = append(whole, until(next, "turn_end", 1)...)
	numbered(t, whole)
	// Another client goes on from when it was lost, at another machine.
	again, leave2 := all[2].listen("", lost)
	defer leave2()
	if rest := until(again, "turn_end", 1); rest[0].gap || rest[len(rest)-1].agent != "x" {
		t.Errorf("from where the machine was lost: %+v", rest)
	}
	// While it is away, so is a machine for a client that comes then.
	c.cut("b")
	third, leave3 := a.listen("", "")
	defer leave3()
	if e := until(third, "node_state", 1); len(e) != 2 || strings.Contains(e[0].id, "*b") {
		t.Errorf("it begins with %+v", e)
	}
	c.mend("b")
	if e := third(); e.name != "node_state" || !e.gap {
		t.Errorf("when the machine is back: %+v", e)
	}
	b.say("x", "three")
	until(third, "turn_end", 1)
}

// An agent whose name another machine has given to another one, and one that has moved, are told of in their order.
func TestMachinesEventsElsewhere(t *testing.T) {
	c, all := clusterOf(t, keeps(t), "a", "b", "c")
	b := all[1]
	b.create("x")
	next, leave := all[0].listen("?after=0", "")
	defer leave()
	b.say("x", "one")
	whole := until(next, "turn_end", 1)
	last := whole[len(whole)-1].seq
	b.destroy("x")
	if _, err := client.Do(b.ctx(), b.client, "", api.DeleteSession, api.DeleteSessionParams{SessionName: "x"}); err != nil && !strings.Contains(err.Error(), "SESSION_NOT_FOUND") {
		t.Fatal(err)
	}
	c.mu.Lock()
	delete(c.claims, "x")
	c.mu.Unlock()
	all[2].create("x")
	all[2].say("x", "two")
	got := story{}
	for _, e := range until(next, "turn_end", 1) {
		got.add(e)
	}
	end := all[2].last("x")
	want := story{"x": {fmt.Sprintf("%d-%d", last+1, last+2), fmt.Sprint("removed ", last+2), fmt.Sprintf("1-%d", end)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A key sees of all machines what it may see of one, until it ends.
func TestMachinesEventsOfKeys(t *testing.T) {
	_, all := clusterOf(t, keeps(t), "a", "b")
	a, b := all[0], all[1]
	b.create("x")
	b.create("y")
	bearer, id := a.scoped(auth.ScopeAgent, "x")
	for query, status := range map[string]int{"": 403, "?agents=y": 403, "?agents=x,y": 403, "?agents=x&after=*b:zz": 400, "?agents=x&after=x:1,x:2": 400} {
		answer, body := a.do(http.MethodGet, "/events"+query, nil, "Authorization", bearer)
		if answer.StatusCode != status {
			t.Errorf("%s: %d %s", query, answer.StatusCode, body)
		}
	}
	conn := a.dial()
	if _, err := io.WriteString(conn, "GET /events?agents=x HTTP/1.1\r\nHost: "+a.addr+"\r\nAuthorization: "+bearer+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	data(t, lines)
	b.say("y", "one")
	b.say("x", "two")
	for e := data(t, lines); e.Get("event.type").Str != "turn_end"; e = data(t, lines) {
		if e.Get("agent_id").Str != "x" {
			t.Errorf("a key of x is told %s", e)
		}
	}
	if _, err := client.Do(a.ctx(), a.client, "", api.RevokeKey, api.RevokeKeyParams{KeyID: id}); err != nil {
		t.Fatal(err)
	}
	if last := data(t, lines); last.Get("reason").Str != "revoked" {
		t.Errorf("the stream of a key that is revoked ends with %s", last)
	}
}
