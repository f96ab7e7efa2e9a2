package bridge_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// take reads events until one of the type has come.
func take(t *testing.T, r *rig, agent string, after uint64, until string) []client.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	var got []client.Event
	for event, err := range r.client.Events(ctx, agent, after, client.Filter{}) {
		if err != nil {
			t.Fatalf("after %d events: %v", len(got), err)
		}
		got = append(got, event)
		if event.Type == until {
			return got
		}
	}
	t.Fatalf("the stream ended without %s", until)
	return nil
}

func TestEventsReplayAndResume(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	if _, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "hello", RequestID: new("r1")}); err != nil {
		t.Fatal(err)
	}
	all := take(t, r, "a", 0, "turn_end")
	var frame string
	for i, e := range all {
		if e.Seq != uint64(i+1) {
			t.Errorf("event %d has number %d", i, e.Seq)
		}
		if e.Type == "message_update" {
			frame = string(e.Data)
		}
	}
	if want := `{"type":"message_update","event":{"type":"text_delta","delta":"hello"}}`; frame != want {
		t.Errorf("got frame %s, want %s as the child wrote it", frame, want)
	}
	middle := len(all) / 2
	rest := take(t, r, "a", all[middle-1].Seq, "turn_end")
	if len(rest) != len(all)-middle || rest[0].Seq != all[middle].Seq {
		t.Errorf("after %d: got %d events from %d on, want the %d that follow", middle, len(rest), rest[0].Seq, len(all)-middle)
	}

	// The header says the same and wins over the query.
	request := r.head("GET /agent/a/events?after=0 HTTP/1.1") + "Last-Event-ID: " + "1\r\n\r\n"
	conn := r.dial()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if id := firstID(t, conn); id != "id: 2" {
		t.Errorf("after Last-Event-ID 1 comes %q", id)
	}
}

// firstID is the line with the id of the first event, behind that of the stream's beginning, which has none.
func firstID(t *testing.T, in io.Reader) string {
	t.Helper()
	lines, id := bufio.NewScanner(in), ""
	for lines.Scan() {
		switch {
		case strings.HasPrefix(lines.Text(), "id:"):
			id = lines.Text()
		case strings.HasPrefix(lines.Text(), "data:") && id != "":
			return id
		}
	}
	t.Fatalf("no event came: %v", lines.Err())
	return ""
}

func TestEventsFromNowOn(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	conn := r.dial()
	if _, err := io.WriteString(conn, r.head("GET /agent/a/events HTTP/1.1")+"\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for { // the first line of the body says that the subscription stands
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == ": open\n" {
			break
		}
	}
	before := take(t, r, "a", 0, "agent_state")
	var from uint64
	if line, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	} else if n, err := fmt.Sscanf(line, "id: %d\n", &from); n != 1 || from < before[len(before)-1].Seq {
		t.Errorf("it goes on after %q, %v, and there was the event %d", line, err, before[len(before)-1].Seq)
	}
	if _, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "hello"}); err != nil {
		t.Fatal(err)
	}
	if id, want := firstID(t, in), fmt.Sprintf("id: %d", from+1); id != want {
		t.Errorf("the first event is %q, want %q", id, want)
	}
}

// A number from an earlier agent of that name: nothing of this one was seen.
func TestEventsOfAnotherLife(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	if got := take(t, r, "a", 1<<40, "agent_state"); got[0].Seq != 1 || got[0].Type != "agent_state" {
		t.Errorf("got %+v, want the events from the first one on", got)
	}
	conn := r.dial() // the client has another meaning for this number
	if _, err := io.WriteString(conn, r.head("GET /agent/a/events?after=18446744073709551615 HTTP/1.1")+"\r\n"); err != nil {
		t.Fatal(err)
	}
	if id := firstID(t, bufio.NewReader(conn)); id != "id: 1" {
		t.Errorf("after the highest number there is, the first event is %q", id)
	}
}

// More streams than the bound are refused, of one agent and of all, and one that
// ends makes room.
func TestManyStreams(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	path := func(i int) string { return []string{"/agent/a/events", "/events"}[i%2] }
	open := func(path string) (_ net.Conn, status string) {
		conn := r.dial()
		if _, err := io.WriteString(conn, r.head("GET "+path+" HTTP/1.1")+"\r\n"); err != nil {
			t.Fatal(err)
		}
		status, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return conn, strings.TrimSpace(status)
	}
	const ok = "HTTP/1.1 200 OK"
	var first net.Conn
	for i := range 256 {
		conn, status := open(path(i))
		if status != ok {
			t.Fatalf("stream %d: %s", i+1, status)
		}
		if i == 0 {
			first = conn
		}
	}
	for i := range 2 {
		response, body := r.do(http.MethodGet, path(i), nil)
		if response.StatusCode != http.StatusServiceUnavailable || gjson.Get(body, "error.code").Int() != -32001 ||
			gjson.Get(body, "error.data.type").Str != "TOO_MANY_STREAMS" {
			t.Errorf("%s: %d %s", path(i), response.StatusCode, body)
		}
	}
	first.Close()
	for began := time.Now(); ; { // the server has yet to notice
		if _, status := open("/events"); status == ok {
			break
		} else if time.Since(began) > patience {
			t.Fatalf("after one has left: %s", status)
		}
	}
}

func TestEventsGap(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		for range 10 {
			c.Say(strings.Repeat("x", 64<<10)) // more than is kept
		}
		c.Finish(p, "")
	}))
	r.create("a")
	if _, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x"}); err != nil {
		t.Fatal(err)
	}
	got := take(t, r, "a", 1, "turn_end")
	if want := fmt.Sprintf(`{"type":"gap","from":2,"to":%d}`, got[1].Seq-1); string(got[0].Data) != want || got[0].Seq != got[1].Seq-1 {
		t.Errorf("got %+v, want %s", got[0], want)
	}
}

func TestEventsEndWithTheAgent(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	ended := make(chan client.Event, 1)
	ctx := r.ctx()
	opened := make(chan struct{}, 1)
	go func() {
		var last client.Event
		for event, err := range r.client.Events(ctx, "a", 0, client.Filter{}) {
			if err != nil {
				break
			}
			last = event
			select {
			case opened <- struct{}{}:
			default:
			}
		}
		ended <- last
	}()
	<-opened
	if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "a"}); err != nil {
		t.Fatal(err)
	}
	last := <-ended
	if last.Type != "end" || last.Seq != 0 {
		t.Errorf("the last event is %+v", last)
	}
	fixtures.Golden(t, "frames/supervisor/end.json", append(last.Data, '\n'))
}

// A stream ends as draining with its server, so that its client comes again; also with the
// keys of a server that a second signal ends, which have not been revoked, nor has one that
// another key has replaced.
func TestEventsEndWithTheServer(t *testing.T) {
	closeKeys := func(r *rig) {
		if err := r.keys.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, end := range map[string]func(r *rig){
		"drained": func(r *rig) { r.stop() }, "its keys": closeKeys,
		"its keys, one of which was replaced": func(r *rig) {
			if _, err := r.keys.Rotate(time.Hour); err != nil {
				t.Error(err)
			}
			closeKeys(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rigged(t, nil)
			r.create("a")
			var last client.Event
			var seen uint64
			for event, err := range r.client.Events(r.ctx(), "a", 0, client.Filter{}) {
				if err != nil {
					t.Fatal(err)
				}
				last = event
				if seen == 0 {
					end(r)
				}
				seen = max(seen, event.Seq)
			}
			if string(last.Data) != fmt.Sprintf(`{"type":"end","reason":"draining","after":%d}`, seen) {
				t.Errorf("the last event is %+v", last)
			}
		})
	}
}

func TestHeartbeat(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.Heartbeat = time.Millisecond })
	r.create("a")
	conn := r.dial()
	if _, err := io.WriteString(conn, r.head("GET /agent/a/events HTTP/1.1")+"\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	for beats := 0; beats < 3; {
		if !lines.Scan() {
			t.Fatalf("after %d heartbeats: %v", beats, lines.Err())
		}
		if lines.Text() == ": heartbeat" {
			beats++
		}
	}
}

// flood is a turn of so many bytes: more than sockets hold.
const flood = 16 << 20

// floods has agents say that much, and clients lose their connection that do not read.
func floods(r *rig, o *bridge.Options) {
	plays(func(c *supervisortest.Child, p protocol.Prompt) {
		const chunk = 64 << 10
		for range flood / chunk {
			c.Say(strings.Repeat("x", chunk))
		}
		c.Finish(p, "")
	})(r, o)
	o.WriteTimeout = 2 * time.Second // enough for the answer of create_agent
}

// A client that does not read loses its connection; the agent's turn goes on.
func TestSlowClientLosesItsConnection(t *testing.T) {
	r := rigged(t, floods)
	r.create("a")
	ended := r.logs.seen(`"route":"events"`)
	conn := r.dial()
	if _, err := io.WriteString(conn, r.head("GET /agent/a/events?after=0 HTTP/1.1")+"\r\n"); err != nil {
		t.Fatal(err)
	}
	loses(t, conn, ended, r, "a")
}

// So does one that reads what is another machine's, which ends its part of that.
func TestSlowClientOfMachines(t *testing.T) {
	_, all := clusterOf(t, floods, "a", "b")
	all[1].create("far")
	ended, part := all[0].logs.seen(`"route":"all_events"`), all[1].logs.seen(`"route":"all_events"`)
	conn := all[0].dial()
	if _, err := io.WriteString(conn, all[0].head("GET /events HTTP/1.1")+"\r\n"); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(conn); lines.Text() != "event: open"; {
		if !lines.Scan() {
			t.Fatalf("the stream does not begin: %v", lines.Err())
		}
	}
	loses(t, conn, ended, all[1], "far")
	soon(t, "the end of the other machine's part", part)
}

// loses has an agent say more than sockets hold while a client that follows it does not read.
func loses(t *testing.T, conn io.Reader, ended <-chan struct{}, owner *rig, name string) {
	t.Helper()
	agent, err := owner.sup.Agent(name)
	if err != nil {
		t.Fatal(err)
	}
	turn, err := agent.Prompt(t.Context(), protocol.Prompt{Message: "x"}, supervisor.PromptOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := turn.Wait(t.Context()); err != nil || got.Outcome != supervisor.Completed {
		t.Fatalf("the turn ended as %v, %v", got.Outcome, err)
	}
	soon(t, "the end of the stream, although nothing was read", ended)
	if n, _ := io.Copy(io.Discard, conn); n >= flood {
		t.Errorf("the slow client got all %d bytes", n)
	}
}

func TestStreamingSend(t *testing.T) {
	seen := make(chan string)
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		for _, word := range []string{"one ", "t\"w\u00f6\n"} {
			c.Say(word)
			select { // each is seen before the next is said
			case got := <-seen:
				if got != word {
					t.Errorf("got chunk %q, want %q", got, word)
				}
			case <-c.Gone():
			}
		}
		c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallStart{ToolID: "1", ToolName: "sleep"}})
		c.Emit(protocol.MessageUpdate{Event: protocol.ThinkingDelta{Delta: "hidden"}})
		c.Say("three")
		if p.Message == "fail" {
			c.Fail(p, "out of words")
			return
		}
		c.Finish(p, "")
	}))
	r.create("a")
	var chunks []string
	take := func(s string) {
		if chunks = append(chunks, s); len(chunks) <= 2 {
			seen <- s
		}
	}
	got, err := r.sendStream(r.ctx(), "a", api.SendParams{Content: "x"}, take, nil)
	if err != nil {
		t.Fatal(err)
	}
	if joined := strings.Join(chunks, ""); len(chunks) != 3 || joined != *got.Content || joined != "one t\"w\u00f6\n\n\nthree" {
		t.Errorf("got chunks %q and content %q", chunks, *got.Content)
	}
	chunks = nil
	_, err = r.sendStream(r.ctx(), "a", api.SendParams{Content: "fail"}, take, nil)
	if e := rpcError(t, err); e.Code != -32603 || len(chunks) != 3 {
		t.Errorf("got %v after %d chunks, want the failure after 3", e, len(chunks))
	}
	_, err = r.sendStream(r.ctx(), "nobody", api.SendParams{Content: "x"}, func(string) {}, nil)
	if e := rpcError(t, err); e.HTTPStatus != 404 {
		t.Errorf("got %v, want 404", e)
	}
}

// A streaming send that waits in the queue gets its own turn's text only.
func TestStreamingSendWaitsItsTurn(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		if p.ID == "run" {
			supervisortest.UntilAborted(c, p)
			return
		}
		supervisortest.Echo(c, p)
	}))
	r.create("a")
	running := r.begin("a", "run")
	var text strings.Builder
	done := make(chan error, 1)
	ctx := r.ctx()
	go func() {
		_, err := r.sendStream(ctx, "a", api.SendParams{Content: "mine"}, func(s string) { text.WriteString(s) }, nil)
		done <- err
	}()
	for { // until it waits
		list, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{})
		if err != nil {
			t.Fatal(err)
		}
		if list.Agents[0].Queued == 1 {
			break
		}
	}
	if _, err := client.Do(r.ctx(), r.client, "a", api.Cancel, api.CancelParams{RequestID: "run"}); err != nil {
		t.Fatal(err)
	}
	r.await(running)
	if err := <-done; err != nil || text.String() != "mine" {
		t.Errorf("got %q, %v, want its own text", text.String(), err)
	}
}
