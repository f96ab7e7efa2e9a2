package bridge_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
	"nexus.internal/supervisor/supervisortest"
)

// logged starts a server that keeps its agents' records on disk.
func logged(t *testing.T) (r *rig, kept *store.Local) {
	r = rigged(t, func(r *rig, o *bridge.Options) {
		kept = sessions.Local(r.home, false, nil)
		r.records = func(id string) (supervisor.Records, error) { return kept.Open(id, false) }
		o.Store = withHistory{o.Store, kept}
	})
	t.Cleanup(kept.Close)
	return r, kept
}

func (r *rig) destroy(id string) {
	r.t.Helper()
	if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: id}); err != nil {
		r.t.Fatal(err)
	}
}

// last is the number of an agent's last event.
func (r *rig) last(id string) uint64 {
	r.t.Helper()
	next, leave := r.listen("?agents="+id, "")
	defer leave()
	_, number, _ := strings.Cut(next().id, id+":")
	return gjson.Parse(number).Uint()
}

// story is what a stream tells of each agent: the events from one number to
// another, a gap, or that it was removed.
type story map[string][]string

func (s story) add(e told) {
	run := fmt.Sprintf("%d-%d", e.seq, e.seq)
	switch {
	case e.name == "agent_removed":
		run = "removed " + gjson.Get(e.event, "last").Raw
	case e.name == "gap":
		run = fmt.Sprintf("gap %d-%d", gjson.Get(e.event, "from").Uint(), gjson.Get(e.event, "to").Uint())
	case len(s[e.agent]) > 0:
		begin, end, ok := strings.Cut(s[e.agent][len(s[e.agent])-1], "-")
		if ok && end == fmt.Sprint(e.seq-1) && !strings.HasPrefix(begin, "gap") {
			s[e.agent][len(s[e.agent])-1] = fmt.Sprintf("%s-%d", begin, e.seq)
			return
		}
	}
	s[e.agent] = append(s[e.agent], run)
}

// A client that was away is told what happened meanwhile, also in agents that are
// gone or were created again, and what nobody can tell any more.
func TestAllEventsAway(t *testing.T) {
	tests := []struct {
		name string
		// away is what happens to a, which the client knows, and to b, which it does
		// not; it returns what is to be told, where the client saw n events of a.
		away func(r *rig, n uint64, kept *store.Local) story
	}{
		{"a goes on and is destroyed", func(r *rig, n uint64, _ *store.Local) story {
			r.say("a", "more")
			last := r.last("a")
			r.destroy("a")
			return story{"a": {fmt.Sprintf("%d-%d", n+1, last+2), fmt.Sprint("removed ", last+2)}}
		}},
		{"a is destroyed and created again", func(r *rig, n uint64, _ *store.Local) story {
			r.destroy("a")
			r.create("a")
			last := r.last("a")
			return story{"a": {fmt.Sprintf("%d-%d", n+1, n+2), fmt.Sprint("removed ", n+2), fmt.Sprintf("%d-%d", n+3, last)}}
		}},
		{"b comes, goes and comes again", func(r *rig, _ uint64, _ *store.Local) story {
			r.create("b")
			r.say("b", "one")
			last := r.last("b")
			r.destroy("b")
			r.create("b")
			return story{"b": {fmt.Sprint("1-", last+2), fmt.Sprint("removed ", last+2), fmt.Sprintf("%d-%d", last+3, r.last("b"))}}
		}},
		{"b comes and goes, and so does what is kept of it", func(r *rig, _ uint64, kept *store.Local) story {
			r.create("b")
			last := r.last("b")
			r.destroy("b")
			if err := kept.Delete("b"); err != nil {
				r.t.Fatal(err)
			}
			return story{"b": {fmt.Sprint("gap 1-", last+2), fmt.Sprint("removed ", last+2)}}
		}},
		{"a becomes another one, who has more to tell", func(r *rig, n uint64, kept *store.Local) story {
			r.destroy("a")
			if err := kept.Delete("a"); err != nil {
				r.t.Fatal(err)
			}
			r.create("a")
			r.say("a", "another")
			r.say("a", "more")
			for onDisk := uint64(0); onDisk < n+2; { // so that it could be taken for the other one's
				for e := range kept.Events("a", 0) {
					onDisk = e.Seq
				}
			}
			return story{"a": {fmt.Sprintf("gap %d-%d", n+1, n+2), fmt.Sprint("removed ", n+2), fmt.Sprint("1-", r.last("a"))}}
		}},
		{"a is destroyed, and what is saved becomes another's", func(r *rig, n uint64, _ *store.Local) story {
			r.destroy("a")
			if _, err := client.Do(r.ctx(), r.client, "", api.DeleteSession, api.DeleteSessionParams{SessionName: "a"}); err != nil {
				r.t.Fatal(err)
			}
			return story{"a": {fmt.Sprintf("gap %d-%d", n+1, n+2), fmt.Sprint("removed ", n+2)}}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, kept := logged(t)
			r.create("a")
			r.say("a", "hello")
			next, leave := r.listen("?after=0", "")
			seen := until(next, "turn_end", 1)
			leave()
			from := seen[len(seen)-1]
			want := tt.away(r, from.seq, kept)
			left := 0 // events to come
			for _, runs := range want {
				for _, run := range runs {
					begin, end, ok := strings.Cut(run, "-")
					if left++; ok && !strings.HasPrefix(begin, "gap") {
						left += int(gjson.Parse(end).Int() - gjson.Parse(begin).Int())
					}
				}
			}
			next, leave = r.listen("", from.id)
			defer leave()
			if e := next(); e.id != from.id || e.gap {
				t.Errorf("it goes on from %s with %+v", from.id, e)
			}
			got := story{}
			for range left {
				got.add(next())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A later server cannot know whom an earlier one had meanwhile, and says so; of
// those that the client names it tells what is on disk, and goes on when they run.
func TestAllEventsLaterServer(t *testing.T) {
	r, kept := logged(t)
	before, err := kept.Open("a", false)
	if err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(3) {
		before.Append(supervisor.Event{Seq: seq + 1, Type: "x", Data: []byte(`{"type":"x"}`)})
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	r.create("before") // that the client names nobody of this server
	r.destroy("before")
	next, leave := r.listen("?agents=a", "*:7,a:1")
	defer leave()
	if e := next(); !strings.HasPrefix(e.id, "*:") || !strings.HasSuffix(e.id, ",a:1") || !e.gap {
		t.Errorf("it begins with %+v", e)
	}
	got := story{}
	for range 2 {
		got.add(next())
	}
	r.create("a")
	for range 2 {
		got.add(next())
	}
	if diff := cmp.Diff(story{"a": {"2-5"}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Who looks on, by the header X-Nexus-Restore, starts no agent that is saved; others do.
func TestLookingOnRestoresNobody(t *testing.T) {
	r, _ := watched(t, supervisortest.Echo)
	r.save("home/sessions/old.jsonl", []byte(savedText), 1)
	const ask = `{"jsonrpc":"2.0","id":1,"method":"get_context"}`
	running := func() int {
		all, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{})
		if err != nil {
			t.Fatal(err)
		}
		return len(all.Agents)
	}
	for _, body := range []string{ask, "[" + ask + "," + ask + "]"} {
		response, text := r.post("/agent/old", body, "X-Nexus-Restore", "false")
		if response.StatusCode != http.StatusNotFound && !strings.HasPrefix(body, "[") || !strings.Contains(text, "AGENT_NOT_FOUND") || running() != 0 {
			t.Errorf("%d %s, %d agents", response.StatusCode, text, running())
		}
	}
	if response, text := r.post("/agent/old", ask); response.StatusCode != http.StatusOK || running() != 1 {
		t.Errorf("%d %s", response.StatusCode, text)
	}
	if response, text := r.post("/agent/old", ask, "X-Nexus-Restore", "false"); response.StatusCode != http.StatusOK {
		t.Errorf("one that runs: %d %s", response.StatusCode, text)
	}
}
