package events_test

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/events"
)

// others are two machines, b and c, which say what a test has them say. This one is a.
type others struct {
	t     *testing.T
	parts map[string]*saying
	owner atomic.Value // a string: the machine that has x
}

// saying is what one of them says.
type saying struct {
	asked chan string // the position of each request
	say   chan string // answers the last one
}

func (*others) Self() string { return "a" }

func (*others) Others() []events.Machine {
	return []events.Machine{{Name: "b", State: "up"}, {Name: "c", State: "up"}}
}

func (o *others) Owner(agent string) (machine string, known bool) {
	return o.owner.Load().(string), agent == "x" //nolint:forcetypeassert // the test's
}

func (o *others) Events(ctx context.Context, machine string, r events.Request) (events.Blocks, error) {
	if r.Query.Has("tool_output") {
		o.t.Errorf("%s is asked for %v", machine, r.Query)
	}
	select {
	case o.parts[machine].asked <- r.Query.Get("after"):
		return answer{ctx, o.parts[machine].say}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer implements [events.Blocks].
type answer struct {
	ctx context.Context //nolint:containedctx // of the request
	say chan string
}

func (a answer) Next() ([]byte, error) {
	select {
	case block := <-a.say:
		if block == "" {
			return nil, io.EOF
		}
		return []byte(block + "\n\n"), nil
	case <-a.ctx.Done():
		return nil, a.ctx.Err()
	}
}
func (answer) Close() {}

// What a machine that was frozen says of an agent that another one has meanwhile is not told, and the client's place in its events is kept: the machine that has
// it then is asked for what comes after that.
func TestOldOwner(t *testing.T) {
	h := newHouse(t)
	o := &others{t: t, parts: map[string]*saying{"b": {make(chan string), make(chan string)}, "c": {make(chan string), make(chan string)}}}
	o.owner.Store("c")
	h.streams = events.New(events.Options{Supervisor: h.sup, Agents: h, History: h, Heartbeat: time.Minute, Log: zap.NewNop(), Elsewhere: o})
	next, leave := h.listen("", "", "")
	defer leave()
	const hex = "00112233445566778899aabbccddeeff"
	event := func(id, seq string) string {
		return "id: " + id + "\nevent: message_update\ndata: {\"agent_id\":\"x\",\"seq\":" + seq + ",\"event\":{\"type\":\"message_update\"}}"
	}
	open := func(position string) string { return "id: " + position + "\nevent: open\ndata: {\"type\":\"open\"}" }
	b, c := o.parts["b"], o.parts["c"]
	for _, p := range []*saying{b, c} {
		if after := <-p.asked; after != "" {
			t.Errorf("a new stream asks for what comes after %q", after)
		}
	}
	b.say <- open("*:" + hex)
	c.say <- open("*:" + hex + ",x:5")
	if e := next(); e.name != "open" || !strings.HasSuffix(e.id, ",x:5") {
		t.Fatalf("it begins with %+v", e)
	}
	tells := func(p *saying, seq string) {
		t.Helper()
		p.say <- event("x:"+seq, seq)
		if e := next(); e.agent != "x" || !strings.HasSuffix(e.id, ",x:"+seq) || strconv.FormatUint(e.seq, 10) != seq {
			t.Fatalf("want %s: %+v", seq, e)
		}
	}
	tells(c, "6")
	b.say <- "id: *:" + hex + "\nevent: begun\ndata: {\"agent_id\":\"x\",\"after\":3}"
	b.say <- event("x:4", "4")
	b.say <- ": taken once what is before it was"
	tells(c, "7")
	// c has it no more, so the one that has is asked from where the client is.
	o.owner.Store("b")
	c.say <- "event: moved\ndata: {\"agent_id\":\"x\"}"
	if after := <-b.asked; after != "*:"+hex+",x:7" {
		t.Errorf("b is asked for what comes after %q", after)
	}
	b.say <- open("*:" + hex + ",x:7")
	tells(b, "8")
	c.say <- "" // it breaks off, and is asked anew
	if after := <-c.asked; after != "*:"+hex {
		t.Errorf("c is asked for what comes after %q", after)
	}
}
