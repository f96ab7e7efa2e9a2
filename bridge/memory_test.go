package bridge_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// fullDisk are records that can take no request while it is full.
type fullDisk struct {
	supervisor.NoRecords

	full atomic.Bool
}

func (d *fullDisk) Accept(string, [sha256.Size]byte) error {
	if d.full.Load() {
		return errors.New("no space left on device")
	}
	return nil
}

func TestNotRecorded(t *testing.T) {
	disk := &fullDisk{}
	r := rigged(t, func(r *rig, _ *bridge.Options) {
		r.records = func(string) (supervisor.Records, error) { return disk, nil }
	})
	r.create("a")
	disk.full.Store(true)
	send := api.SendParams{Content: "hi", RequestID: new("r")}
	_, err := client.Do(r.ctx(), r.client, "a", api.Send, send)
	e := wantError(t, err, jsonrpc.CodeUnavailable, "NOT_RECORDED", 200)
	if !strings.Contains(e.Data.Details, "no space left") {
		t.Errorf("details %q", e.Data.Details)
	}
	disk.full.Store(false)
	got, err := client.Do(r.ctx(), r.client, "a", api.Send, send)
	if err != nil || *got.Content != "hi" || got.Replayed {
		t.Errorf("the same send with room: %+v, %v", got, err)
	}
}

// repeats are records that note which prompts somebody may repeat.
type repeats struct {
	supervisor.NoRecords

	mu      sync.Mutex
	prompts string
}

func (n *repeats) note(how string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prompts += how
	return nil
}

func (n *repeats) Accept(string, [sha256.Size]byte) error        { return n.note("named ") }
func (n *repeats) AcceptUnnamed(string, [sha256.Size]byte) error { return n.note("unnamed ") }

// A send can be repeated by who gave its request_id, or is told it before the outcome, or asked the server to repeat it.
func TestWhoCanRepeatASend(t *testing.T) {
	n := &repeats{}
	r := rigged(t, func(r *rig, _ *bridge.Options) {
		r.records = func(string) (supervisor.Records, error) { return n, nil }
	})
	r.create("a")
	for _, p := range []map[string]any{{"request_id": nil}, {"request_id": "r"}, {"request_id": nil, "on_crash": "retry"}, {}} { // a client makes one where there is none
		p["content"] = "x"
		if err := r.client.Call(r.ctx(), "/agent/a", "send", p, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.sendStream(r.ctx(), "a", api.SendParams{Content: "x"}, func(string) {}, func() {}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("b"), InitialMessage: new("x")}); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.prompts != "unnamed named named named named named " {
		t.Errorf("the prompts are %q", n.prompts)
	}
}

// What was said before a crash is in the error, also when it is told again.
func TestPartial(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		c.Say(strings.Repeat("é", 40_000))
		c.Crash(supervisor.Exit{Code: 3})
	}))
	r.create("a")
	for _, replayed := range []bool{false, true} {
		_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x", RequestID: new("r")})
		e := wantError(t, err, jsonrpc.CodeServerError, "CHILD_CRASHED", 200)
		if e.Data.Partial != strings.Repeat("é", 32<<10) || e.Data.Replayed != replayed {
			t.Errorf("%d bytes, replayed %v, want %v", len(e.Data.Partial), e.Data.Replayed, replayed)
		}
	}
}

// A send that is sent again says so, and its stream that it begins anew.
func TestOnCrash(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		if c.Number()%2 == 0 {
			supervisortest.Echo(c, p)
			return
		}
		c.Say("half")
		c.Crash(supervisor.Exit{Code: 3})
	}))
	for _, c := range []struct {
		onCrash string
		chunks  string
	}{{api.OnCrashRetry, "half|whole"}, {api.OnCrashFail, "half"}} {
		r.create(c.onCrash)
		var chunks string
		p := api.SendParams{Content: "whole", OnCrash: &c.onCrash}
		got, err := r.sendStream(r.ctx(), c.onCrash, p, func(s string) { chunks += s }, func() { chunks += "|" })
		if chunks != c.chunks {
			t.Errorf("%s: chunks %q, want %q", c.onCrash, chunks, c.chunks)
		}
		if c.onCrash == api.OnCrashFail {
			wantError(t, err, jsonrpc.CodeServerError, "CHILD_CRASHED", 200)
		} else if err != nil || *got.Content != "whole" || got.Attempt != 2 {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	_, err := client.Do(r.ctx(), r.client, api.OnCrashFail, api.Send, api.SendParams{Content: "x", OnCrash: new("again")})
	wantError(t, err, jsonrpc.CodeInvalidParams, "INVALID_PARAMS", 200)
}

// A send that waits is in memory once, however it came: its body, its parameters and
// its envelope are let go.
func TestWaitingSendsAreKeptOnce(t *testing.T) {
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		<-c.Aborted()
		c.Finish(p, "")
	}))
	const agents, waiting, size = 4, 8, 1_000_000
	text := strings.Repeat("x", size)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for i := range agents {
		r.create(fmt.Sprint(i))
	}
	before := heap()
	for i := range agents * waiting {
		// One of each kind: plain, streamed, and joined by somebody else.
		accept := []string{"", "Accept: text/event-stream\r\n"}[i%2]
		for range 2 {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"an id","method":"send","params":{"request_id":"%d","content":"%s"}}`, i, text)
			head := r.head(fmt.Sprintf("POST /agent/%d HTTP/1.1", i%agents)) + accept
			if _, err := io.WriteString(r.dial(), withLength(head, body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for began := time.Now(); ; {
		if s := r.sup.Stats(); s.Waiting == agents*(waiting-1) && s.Repeats == agents*waiting {
			break
		} else if time.Since(began) > patience {
			t.Fatalf("%+v", s)
		}
		runtime.Gosched()
	}
	if grown, most := heap()-before, uint64(agents*waiting*size*3/2); grown > most {
		t.Errorf("%d bytes more for %d bytes of text", grown, agents*waiting*size)
	}
	for i := range agents {
		if err := r.sup.Remove(r.ctx(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
}
