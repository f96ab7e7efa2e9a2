package main_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// resume reads an agent's events after a number until one of them is the last
// that is wanted, and returns its number. Each follows the one before, but for
// gaps, which say so.
func (s *live) resume(agent string, after uint64, last func(data string) bool) (seq uint64, gaps int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/agent/"+agent+"/events", nil)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Last-Event-ID", strconv.FormatUint(after, 10))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	seq = after
	lines := bufio.NewScanner(res.Body)
	var id uint64
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id, _ = strconv.ParseUint(text, 10, 64) // 0 is none that follows
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		from := id
		if gjson.Get(data, "type").Str == "gap" {
			gaps++
			from = gjson.Get(data, "from").Uint()
		}
		if from != seq+1 {
			s.Fatalf("event %d, from %d, follows %d: %s", id, from, seq, data)
		}
		if seq = id; last(data) {
			return seq, gaps
		}
	}
	s.Fatalf("the events end after %d: %v", seq, lines.Err())
	return 0, 0
}

// An event stream goes on from the last number that was seen, whatever of agent
// and server was killed or ended meanwhile: nothing twice, and nothing missing
// without a gap that says so. A gap there is only where the server was killed.
func TestEventsGoOn(t *testing.T) {
	t.Parallel() // most of it is waiting
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	has := func(text string) func(string) bool {
		return func(data string) bool { return strings.Contains(data, text) }
	}
	var seen uint64
	for life := range 3 {
		id := "killed-" + strconv.Itoa(life)
		running := make(chan struct{})
		go func() {
			defer close(running)
			_, _, _ = request(http.MethodPost, s.url+"/agent/a", http.Header{"Authorization": {"Bearer " + s.key}}, // cut off
				fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"send","params":{"request_id":%q,"content":"count to 4000"}}`, id))
		}()
		seen, _ = s.resume("a", seen, has(`"turn_start","turn_id":"`+id+`"`))
		seen, _ = s.resume("a", seen, has(`"delta":"5 "`))
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait() // killed
		<-running
		s.again()
		var gaps int
		var end string
		seen, gaps = s.resume("a", seen, func(data string) bool {
			end = data
			return strings.Contains(data, `"turn_end","turn_id":"`+id+`"`)
		})
		if outcome := gjson.Get(end, "outcome").Str; outcome != "crashed" {
			t.Errorf("the turn that was cut off: %s", end)
		}
		if gaps != 1 {
			t.Errorf("%d gaps after a kill, want 1", gaps)
		}
	}
	s.end()
	s.again()
	s.send("a", "echo after all")
	if _, gaps := s.resume("a", seen, has(`"outcome":"completed"`)); gaps != 0 {
		t.Errorf("%d gaps after a clean end", gaps)
	}
	if first, _ := s.resume("a", 1, has(`"delta":"1 "`)); first > seen { // it is all still there
		t.Errorf("the first word has the number %d", first)
	}
	s.end()
}

// What a temporary agent did is remembered as long as its session can be gone on
// with: however agent and server ended, and under the name that it is saved by. A
// prompt would be run twice otherwise.
func TestTemporaryAgentRemembers(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":".t"}`)
	once := func(agent string) gjson.Result {
		return gjson.Parse(s.call("/agent/"+agent, "send", `{"request_id":"once","content":"echo once"}`)).Get("result")
	}
	if r := once(".t"); r.Get("content").Str != "once" || r.Get("replayed").Bool() {
		t.Fatalf("the first send: %s", r)
	}
	seen, _ := s.resume(".t", 0, func(data string) bool { return strings.Contains(data, "turn_end") })
	for how, end := range map[string]func(){
		"destroyed": func() { s.call("/", "destroy_agent", `{"agent_id":".t"}`) },
		"drained": func() {
			s.end()
			s.again()
		},
		"killed": func() {
			if err := s.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = s.cmd.Wait() // killed
			s.again()
		},
	} {
		end()
		s.call("/", "load_session", `{"last":true}`)
		if r := once(".t"); r.Get("content").Str != "once" || !r.Get("replayed").Bool() {
			t.Errorf("%s, and sent again: %s", how, r)
		}
		seen, _ = s.resume(".t", seen, func(data string) bool { return strings.Contains(data, `"state":"ready"`) })
	}
	s.call("/", "save_session", `{"agent_id":".t","session_name":"kept"}`)
	if r := once("kept"); !r.Get("replayed").Bool() {
		t.Errorf("saved under a name, and sent again: %s", r)
	}
	s.resume("kept", seen, func(data string) bool { return strings.Contains(data, `"state":"ready"`) })
	s.call("/", "create_agent", `{"agent_id":".t"}`)
	if r := once(".t"); r.Get("replayed").Bool() {
		t.Errorf("a new agent of the name: %s", r)
	}
	if messages := gjson.Parse(s.call("/agent/kept", "get_messages", `{}`)).Get("result.total").Int(); messages != 2 {
		t.Errorf("%d messages, want 2", messages)
	}
	s.end()
}
