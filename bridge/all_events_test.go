package bridge_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// told is one event of GET /events.
type told struct {
	id, name string // "" for an event without one
	agent    string
	seq      uint64
	event    string // as the child wrote it
	gap      bool   // of open: somebody may have been missed
}

// listen opens GET /events and returns what it tells, one event a call. from is
// an id to go on from, "" for none.
func (r *rig) listen(query, from string) (next func() told, leave func()) {
	r.t.Helper()
	conn := r.dial()
	request := r.head("GET /events" + query + " HTTP/1.1")
	if from != "" {
		request += "Last-Event-ID: " + from + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		r.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		r.t.Fatalf("%s: %s", response.Status, body)
	}
	lines := bufio.NewReader(response.Body)
	return func() (e told) {
		r.t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				r.t.Fatalf("the stream broke off: %v", err)
			}
			line = strings.TrimSuffix(line, "\n")
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.agent, e.seq = gjson.Get(value, "agent_id").Str, gjson.Get(value, "seq").Uint()
				e.event, e.gap = gjson.Get(value, "event").Raw, gjson.Get(value, "gap").Bool()
			case "":
				if line == "" && e.name != "" {
					return e
				}
			}
		}
	}, func() { conn.Close() }
}

// until collects what comes up to n events of a type.
func until(next func() told, name string, n int) (all []told) {
	for {
		e := next()
		if all = append(all, e); e.name == name {
			if n--; n == 0 {
				return all
			}
		}
	}
}

// say sends a message and waits for its end.
func (r *rig) say(agent, text string) {
	r.t.Helper()
	if _, err := client.Do(r.ctx(), r.client, agent, api.Send, api.SendParams{Content: text}); err != nil {
		r.t.Fatal(err)
	}
}

// One stream has the events of all agents, each whole and in its order; those of
// an agent that is created later from its first on; and it says who was removed.
func TestAllEvents(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	r.say("a", "before")
	next, leave := r.listen("", "")
	defer leave()
	if e := next(); e.name != "open" || !strings.Contains(e.id, ",a:") {
		t.Fatalf("the first event is %+v", e)
	}
	r.create("b")
	r.say("b", "one")
	r.say("a", "two")
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
	if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "b"}); err != nil {
		t.Fatal(err)
	}
	removed := until(next, "agent_removed", 1)
	if e := removed[len(removed)-1]; e.agent != "b" || strings.Contains(e.id, "b:") {
		t.Errorf("got %+v", e)
	}
	r.create("b") // another one, whose numbers begin anew
	if e := next(); e.agent != "b" || e.seq != 1 {
		t.Errorf("the new one begins with %+v", e)
	}
}

// Whoever goes on from an id misses nothing and gets nothing twice, of any agent,
// also of one that came meanwhile, wherever the stream was cut.
func TestAllEventsResume(t *testing.T) {
	r := rigged(t, nil)
	for _, id := range []string{"a", "b", "c"} {
		r.create(id)
		r.say(id, "hello "+id)
	}
	next, leave := r.listen("?after=0", "")
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
		next, leave := r.listen("", whole[cut-1].id)
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
	r.create("d")
	r.say("d", "new")
	r.say("a", "more")
	next, leave = r.listen("", from)
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

// A filter leaves out events and numbers nothing anew.
func TestEventFilters(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	r.create("b")
	r.say("a", "one")
	r.say("b", "two")
	next, leave := r.listen("?after=0&agents=b,nobody&types=turn_start,turn_end", "")
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

	conn := r.dial()
	if _, err := io.WriteString(conn, r.head("GET /agent/a/events?after=0&types=turn_end HTTP/1.1")+"\r\n"); err != nil {
		t.Fatal(err)
	}
	all := take(t, r, "a", 0, "turn_end")
	if id, want := firstID(t, conn), fmt.Sprintf("id: %d", all[len(all)-1].Seq); id != want {
		t.Errorf("the first of a filtered stream is %q, want %q", id, want)
	}
	for _, query := range []string{"?types=", "?agents=a,,b", "?agents=../a", "?after=x", "?after=a:1,a:2", "?after=a:-1", "?types=%zz"} {
		response, body := r.raw(r.head("GET /events"+query+" HTTP/1.1") + "\r\n")
		if response.StatusCode != http.StatusBadRequest || gjson.Get(body, "error.code").Int() != -32602 {
			t.Errorf("%s: %d %s", query, response.StatusCode, body)
		}
	}
}
