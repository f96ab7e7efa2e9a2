package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// talk is a turn that says as many kilobytes as its prompt has characters.
func talk(c *supervisortest.Child, p protocol.Prompt) {
	kilobyte := strings.Repeat("x", 1000)
	for range len(p.Message) {
		c.Say(kilobyte)
	}
	c.Finish(p, "")
}

func (h *house) subscribe(a *supervisor.Agent, after uint64) *supervisor.Subscription {
	h.Helper()
	sub, err := a.Subscribe(after)
	if err != nil {
		h.Fatal(err)
	}
	return sub
}

// read takes batches until the event with the number last, checking that the
// numbers follow each other. It returns the first event.
func (h *house) read(sub *supervisor.Subscription, last uint64) supervisor.Event {
	h.Helper()
	var first supervisor.Event
	var seq uint64
	for seq < last {
		batch, err := sub.Next(h.Context())
		if err != nil {
			h.Fatalf("Next after %d: %v", seq, err)
		}
		for _, e := range batch {
			if first.Type == "" {
				first = e
			} else if e.Seq != seq+1 {
				h.Fatalf("event %d follows %d", e.Seq, seq)
			}
			seq = e.Seq
		}
	}
	return first
}

func (h *house) say(a *supervisor.Agent, kilobytes int) {
	h.Helper()
	h.outcome(h.prompt(a, "", strings.Repeat("k", kilobytes)), supervisor.Completed)
}

func TestSubscribe(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: talk}), func(h *house) {
		a := h.start("alice")
		h.say(a, 10) // events 1 to 15
		for _, c := range []struct {
			after uint64
			first string
		}{
			{0, "1 agent_state"},
			{1, "2 agent_state"},
			{2, "3 turn_start"},
			{14, "15 turn_end"},
			{16, "1 agent_state"},             // from another life: all is new, and nothing is missing
			{math.MaxUint64, "1 agent_state"}, // as any other
		} {
			sub := h.subscribe(a, c.after)
			e := h.read(sub, 15)
			if got := fmt.Sprintf("%d %s", e.Seq, e.Type); got != c.first {
				h.Errorf("after %d the first event is %s, want %s", c.after, got, c.first)
			}
			sub.Close()
		}
		for i, subscribe := range []func() (*supervisor.Subscription, error){
			func() (*supervisor.Subscription, error) { return a.Subscribe(15) },
			a.SubscribeNew, // after what the first one has brought about
		} {
			sub, err := subscribe()
			if err != nil {
				h.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(h.Context(), time.Second)
			if batch, err := sub.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
				h.Errorf("subscription %d: %v, %v, want nothing yet", i, batch, err)
			}
			cancel()
			go h.say(a, 0)
			if batch, err := sub.Next(h.Context()); err != nil || batch[0].Type != "turn_start" {
				h.Errorf("subscription %d: %v, %v", i, batch, err)
			}
			sub.Close()
			if _, err := sub.Next(h.Context()); err != io.EOF {
				h.Errorf("Next of a closed subscription = %v, want io.EOF", err)
			}
			synctest.Wait()
		}
	})
}

// 256 KiB are kept for whoever comes; who asks for more is told of the gap.
func TestHistoryIsBounded(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: talk}), func(h *house) {
		a := h.start("alice")
		h.say(a, 1000) // 1005 events
		events := h.events(a)
		size := 0
		for _, e := range events {
			size += len(e.Data)
		}
		if size > supervisor.HubKeep || size < supervisor.HubKeep*8/10 {
			h.Errorf("%d bytes are kept", size)
		}
		first := events[0].Seq
		gap := h.read(h.subscribe(a, 3), 1005)
		want := fmt.Sprintf(`{"type":"gap","from":4,"to":%d}`, first-1)
		if gap.Seq != first-1 || string(gap.Data) != want {
			h.Errorf("first event %d %s, want %s", gap.Seq, gap.Data, want)
		}
		gap = h.read(h.subscribe(a, 99_999), 1005) // from another life: all that was here is missing
		if want := fmt.Sprintf(`{"type":"gap","from":1,"to":%d}`, first-1); gap.Seq != first-1 || string(gap.Data) != want {
			h.Errorf("first event %d %s, want %s", gap.Seq, gap.Data, want)
		}
	})
}

// More is kept for a subscriber that has yet to read it, up to 4 MiB; then it
// is let go, and only it.
func TestSlowSubscriber(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: talk}), func(h *house) {
		a := h.start("alice")
		slow, quick := h.subscribe(a, 0), h.subscribe(a, 0)
		h.say(a, 3500)
		if first := h.read(quick, 3505); first.Seq != 1 {
			h.Errorf("first event %d", first.Seq)
		}
		h.say(a, 1000)
		if batch, err := slow.Next(h.Context()); !errors.Is(err, supervisor.ErrSlow) {
			h.Errorf("Next of the slow one = %d events, %v, want ErrSlow", len(batch), err)
		}
		if first := h.read(quick, 4508); first.Seq != 3506 {
			h.Errorf("the quick one goes on with event %d", first.Seq)
		}
		if n := len(h.events(a)); n > 256 {
			h.Errorf("%d events are kept when nobody needs them", n)
		}
		if n := h.sup.Stats().SlowSubs; n != 1 {
			h.Errorf("%d slow subscribers counted", n)
		}
	})
}

func TestSubscriptionEndsWithItsAgent(t *testing.T) {
	run(t, nil, func(h *house) {
		a := h.start("alice")
		sub := h.subscribe(a, 0)
		if err := h.sup.Remove(h.Context(), "alice"); err != nil {
			h.Fatal(err)
		}
		batch, err := sub.Next(h.Context())
		if err != nil || !strings.Contains(string(batch[len(batch)-1].Data), "stopped") {
			h.Errorf("what it said before = %v, %v", batch, err)
		}
		if _, err := sub.Next(h.Context()); err != io.EOF {
			h.Errorf("Next = %v, want io.EOF", err)
		}
		if _, err := a.Subscribe(0); !errors.Is(err, supervisor.ErrNotFound) {
			h.Errorf("Subscribe = %v, want ErrNotFound", err)
		}
	})
}

func BenchmarkPublish(b *testing.B) {
	launcher := &supervisortest.Launcher{Plan: always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		for range b.N {
			c.Say("a word ")
		}
		c.Finish(p, "")
	}})}
	s := supervisor.New(supervisor.Options{Launcher: launcher})
	ctx, cancel := context.WithCancel(b.Context())
	defer s.Run(ctx)
	defer cancel()
	a, err := s.Start(ctx, supervisor.Spec{ID: "alice"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	turn, err := a.Prompt(ctx, protocol.Prompt{}, supervisor.PromptOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := turn.Wait(ctx); err != nil {
		b.Fatal(err)
	}
}

// What one subscriber is given at a time is bounded, so that one that is stuck
// keeps little to itself; a single event is given however large it is.
func TestBatches(t *testing.T) {
	const most = 64 << 10
	d := &diary{}
	remembering(t, func(string) supervisor.Records { return d }, always(supervisortest.Play{Prompt: talk}), func(h *house) {
		a := h.start("alice")
		early := h.subscribe(a, 0)
		h.say(a, 2000) // 2005 events
		for where, sub := range map[string]*supervisor.Subscription{"memory": early, "log": h.subscribe(a, 0)} {
			for seq := uint64(0); seq < 2005; {
				batch, err := sub.Next(h.Context())
				if err != nil {
					h.Fatal(err)
				}
				size := 0
				for _, e := range batch {
					if e.Seq != seq+1 {
						h.Fatalf("%s: event %d follows %d", where, e.Seq, seq)
					}
					seq = e.Seq
					size += len(e.Data)
				}
				if size > most+2000 {
					h.Fatalf("%s: %d events of %d bytes at once", where, len(batch), size)
				}
			}
			sub.Close()
		}
	})
}

// BenchmarkDelta is the routing of one text_delta of a turn, from its frame to the hub.
func BenchmarkDelta(b *testing.B) {
	launcher := &supervisortest.Launcher{Plan: always(supervisortest.Play{Prompt: supervisortest.UntilAborted})}
	s := supervisor.New(supervisor.Options{Launcher: launcher})
	ctx, cancel := context.WithCancel(b.Context())
	defer s.Run(ctx)
	defer cancel()
	a, err := s.Start(ctx, supervisor.Spec{ID: "alice"})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := a.Prompt(ctx, protocol.Prompt{}, supervisor.PromptOptions{}); err != nil {
		b.Fatal(err)
	}
	f := protocol.Frame{Type: "message_update", Raw: []byte(`{"type":"message_update","event":{"type":"text_delta","delta":"hello world, some words"}}`)}
	b.ReportAllocs()
	for b.Loop() {
		supervisor.Handle(a, f)
	}
}
