package supervisor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// What is gone from memory is read from the log, without a hole or a number
// twice, also while more is published; what the log has lost is told as gaps.
func TestEventsFromTheLog(t *testing.T) {
	d := &diary{lost: func(seq uint64) bool { return seq >= 500 && seq < 600 || seq == 700 }}
	remembering(t, func(string) supervisor.Records { return d }, always(supervisortest.Play{Prompt: talk}), func(h *house) {
		a := h.start("alice")
		h.say(a, 3000)
		more := 3
		d.reading = func() { // after it was looked at how much there is to read
			if more--; more >= 0 {
				h.say(a, 400)
			}
		}
		sub := h.subscribe(a, 10)
		defer sub.Close()
		seq, gaps := uint64(10), []string{}
		for seq < 3005+3*403 {
			ctx, cancel := context.WithTimeout(h.Context(), time.Second)
			batch, err := sub.Next(ctx)
			cancel()
			if err != nil {
				h.Fatalf("after %d: %v", seq, err)
			}
			for _, e := range batch {
				switch {
				case e.Type == "gap":
					gaps = append(gaps, string(e.Data))
				case e.Seq != seq+1:
					h.Fatalf("event %d follows %d", e.Seq, seq)
				}
				seq = e.Seq
			}
			if sub.After() != seq {
				h.Fatalf("After = %d, want %d", sub.After(), seq)
			}
		}
		if want := []string{`{"type":"gap","from":500,"to":599}`, `{"type":"gap","from":700,"to":700}`}; !slices.Equal(gaps, want) {
			h.Errorf("gaps %v, want %v", gaps, want)
		}
		if first := h.all(a, 0, 1)[0]; !strings.HasPrefix(first, "1 ") {
			h.Errorf("all that is kept begins with %s", first)
		}
	})
}

// What the log has lost up to what is in memory is a gap too.
func TestEventsThatTheLogLost(t *testing.T) {
	d := &diary{lost: func(seq uint64) bool { return seq >= 100 }}
	remembering(t, func(string) supervisor.Records { return d }, always(supervisortest.Play{Prompt: talk}), func(h *house) {
		a := h.start("alice")
		h.say(a, 1000) // 1005 events
		got := h.all(a, 97, 100)
		if !strings.HasPrefix(got[1], "99 ") || !strings.Contains(got[2], `{"type":"gap","from":100,"to":`) {
			h.Errorf("events: %.200q", got)
		}
	})
}
