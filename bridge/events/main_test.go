package events_test

import (
	"context"
	"iter"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/events"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house has the streams of the events of agents whose children are played in memory.
type house struct {
	t       *testing.T
	sup     *supervisor.Supervisor
	streams *events.Streams
	last    uint64                                                           // of each agent in an earlier server
	stored  func(id string, after uint64) iter.Seq2[supervisor.Event, error] // nil where nothing is on disk
}

// Open implements [supervisor.Store].
func (h *house) Open(string, bool) (supervisor.Records, error) { return earlier{last: h.last}, nil }

// earlier are the records of an agent that was in an earlier server.
type earlier struct {
	supervisor.NoRecords
	last uint64
}

func (e earlier) Last() uint64 { return e.last }

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t}
	h.sup = supervisor.New(supervisor.Options{Launcher: &supervisortest.Launcher{}, Store: h})
	h.streams = events.New(events.Options{Supervisor: h.sup, Agents: h, History: h, Heartbeat: time.Minute, Log: zap.NewNop()})
	running, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := h.sup.Run(running); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { stop(); work.Wait() })
	return h
}

// Resolve implements [events.Agents]: none is saved.
func (h *house) Resolve(_ context.Context, id string) (*supervisor.Agent, error) {
	return h.sup.Agent(id)
}

// Enter implements [events.Agents].
func (*house) Enter(context.Context, []string, bool) (func(), error) { return func() {}, nil }

// Leaves implements [events.Agents].
func (*house) Leaves(string) bool { return false }

// Certain implements [events.Agents].
func (*house) Certain(string) error { return nil }

// CheckStart implements [events.Agents].
func (*house) CheckStart(rpc.Principal, string, bool) error { return nil }

// Events implements [events.History].
func (h *house) Events(id string, after uint64) iter.Seq2[supervisor.Event, error] {
	if h.stored != nil {
		return h.stored(id, after)
	}
	return func(func(supervisor.Event, error) bool) {}
}

func (h *house) create(id string) {
	h.t.Helper()
	if _, err := h.sup.Start(h.t.Context(), supervisor.Spec{ID: id}); err != nil {
		h.t.Fatal(err)
	}
}

// say has an agent run a turn to its end.
func (h *house) say(id, text string) {
	h.t.Helper()
	a, err := h.sup.Agent(id)
	if err != nil {
		h.t.Fatal(err)
	}
	turn, err := a.Prompt(h.t.Context(), protocol.Prompt{Message: text}, supervisor.PromptOptions{})
	if err == nil {
		_, err = turn.Wait(h.t.Context())
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// told is one event of a stream.
type told struct {
	id, name string // "" for an event without one
	agent    string // of a stream of all agents
	seq      uint64
	event    string // as the child wrote it
	gap      bool   // of open: somebody may have been missed
}

// pipe is a stream that is read event by event.
type pipe struct {
	ctx    context.Context
	blocks chan string
}

// Send implements [rpc.Writer].
func (p pipe) Send(batch []byte) error {
	for block := range strings.SplitSeq(strings.TrimSuffix(string(batch), "\n\n"), "\n\n") {
		select {
		case p.blocks <- block:
		case <-p.ctx.Done():
			return rpc.ErrSlowClient
		}
	}
	return nil
}

// request is a request with a full key.
func request(agent, query, from string) events.Request {
	values, err := url.ParseQuery(query)
	if err != nil {
		panic(err)
	}
	by := rpc.Principal{Grant: auth.Grant{Scope: auth.ScopeFull}, Valid: context.Background()}
	return events.Request{By: by, Agent: agent, LastEventID: from, Query: values}
}

// listen opens a stream, and returns what it tells, one event a call; agent is "" for all.
// from is an id to go on from, "" for none.
func (h *house) listen(agent, query, from string) (next func() told, leave func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	p := pipe{ctx, make(chan string)}
	var serving sync.WaitGroup
	serving.Go(func() {
		defer close(p.blocks)
		if refused, _ := h.streams.Serve(ctx, request(agent, query, from), p); refused != nil {
			h.t.Errorf("the stream is refused: %+v", refused)
		}
	})
	return func() (e told) {
			h.t.Helper()
			for block := range p.blocks {
				for line := range strings.SplitSeq(block, "\n") {
					switch field, value, _ := strings.Cut(line, ": "); field {
					case "id":
						e.id = value
					case "event":
						e.name = value
					case "data":
						e.agent, e.seq = gjson.Get(value, "agent_id").Str, gjson.Get(value, "seq").Uint()
						e.event, e.gap = gjson.Get(value, "event").Raw, gjson.Get(value, "gap").Bool()
					}
				}
				if e.name != "" {
					return e
				}
			}
			h.t.Fatal("the stream broke off")
			return e
		}, func() {
			cancel()
			serving.Wait()
		}
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
