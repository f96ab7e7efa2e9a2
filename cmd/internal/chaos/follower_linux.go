package chaos

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// follower reads the events of one agent, connecting again where it left off,
// and allows what the agent asks for.
type follower struct {
	server  *server
	history *History
	agent   string

	stop context.CancelFunc
	done sync.WaitGroup
	last atomic.Uint64 // number of the last event

	// The rest is the reader's.
	sub  int
	high uint64 // the highest last so far
	turn string // the request whose turn is being streamed; "" for none
	said []byte // its text so far, as an answer has it
	tool bool   // a tool was called since
}

// follow begins where the follower was; leave ends it.
func (f *follower) follow() {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.done.Go(func() {
		for ctx.Err() == nil {
			c, err := f.server.call(ctx)
			if err != nil {
				return
			}
			f.read(ctx, c)
			pause(ctx, 50*time.Millisecond)
		}
	})
}

func (f *follower) unfollow() {
	f.stop()
	f.done.Wait()
}

// replay asks for all events but the first once more, and follows until it gets
// to the last that it had seen.
func (f *follower) replay(ctx context.Context) {
	f.unfollow()
	target := f.last.Load()
	f.turn = ""
	f.last.Store(min(1, target))
	f.follow()
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for f.last.Load() < target {
		if !pause(limited, 20*time.Millisecond) {
			f.history.Add(Record{Kind: Behind, Agent: f.agent, Seq: target})
			return
		}
	}
}

// read takes events until the connection ends.
func (f *follower) read(ctx context.Context, c *client.Client) {
	opened := false
	for event, err := range c.Events(ctx, f.agent, f.last.Load(), client.Filter{}) {
		if err != nil || event.Type == "end" {
			return
		}
		if !opened {
			opened = true
			f.sub++
			f.history.Add(Record{Kind: Subscribed, Agent: f.agent, Sub: f.sub, Seq: f.last.Load()})
		}
		r := Record{
			Kind: Seen, Agent: f.agent, Sub: f.sub, Seq: event.Seq, Type: event.Type, Sum: sum(event.Data), Size: len(event.Data),
		}
		fresh := event.Seq > f.high
		f.high = max(f.high, event.Seq)
		frame, _ := event.Decode() // nil if it cannot be read: then it only counts
		switch e := frame.(type) {
		case protocol.Gap:
			r.From = e.From
			f.turn = ""
		case protocol.TurnStart:
			r.Request = e.TurnID
			f.turn, f.said, f.tool = e.TurnID, nil, false
		case protocol.MessageUpdate:
			f.take(e.Event)
		case protocol.TurnEnd:
			r.Request, r.Outcome = e.TurnID, e.Outcome
			r.Said, r.Whole = sum(f.said), f.turn == e.TurnID
			f.turn = ""
		case protocol.PermissionRequest:
			if !fresh {
				break
			}
			// Whether it still waits is not ours to know.
			_ = c.Call(ctx, client.AgentPath(f.agent), "respond_permission", api.RespondPermissionParams{
				RequestID: e.RequestID, Decision: protocol.AllowOnce,
			}, nil)
		}
		f.history.Add(r)
		f.last.Store(event.Seq)
	}
}

// take adds a piece of a message to the text of the turn (SPEC §6.3).
func (f *follower) take(step protocol.AssistantEvent) {
	switch e := step.(type) {
	case protocol.TextDelta:
		if f.tool && e.Delta != "" {
			f.said, f.tool = append(f.said, "\n\n"...), false
		}
		f.said = append(f.said, e.Delta...)
	case protocol.ToolcallStart:
		f.tool = len(f.said) > 0
	}
}
