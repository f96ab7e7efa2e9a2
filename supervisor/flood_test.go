package supervisor_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// A flood gives way while another agent has a turn, and a moment after it; alone it is read
// as fast as it comes.
func TestFloodGivesWay(t *testing.T) {
	const frames = 1280
	plan := func(s supervisor.Spec, _ int) supervisortest.Play {
		if s.ID == "flood" {
			return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				for range frames {
					c.Say("word")
				}
				c.Finish(p, "words")
			}}
		}
		return supervisortest.Play{Prompt: supervisortest.UntilAborted}
	}
	run(t, plan, func(h *house) {
		flood, other := h.start("flood"), h.start("other")
		took := func(id string) time.Duration {
			began := time.Now()
			if _, err := h.prompt(flood, id, "flood").Wait(h.Context()); err != nil {
				h.Error(err)
			}
			return since(began)
		}
		if got := took("1") + took("2"); got != 0 {
			h.Errorf("alone, a flood took %v", got)
		}
		turn := h.prompt(other, "3", "go on")
		synctest.Wait()
		if got := took("4"); got < 10*time.Millisecond || got > 12*time.Millisecond {
			h.Errorf("beside a turn, a flood of %d frames took %v, want a millisecond for each 128", frames, got)
		}
		if _, err := other.Abort(h.Context(), turn.ID()); err != nil {
			h.Error(err)
		}
		if took("5") == 0 {
			h.Error("it did not give way just after a turn")
		}
		time.Sleep(20 * time.Millisecond) // in the bubble's time
		if got := took("6"); got != 0 {
			h.Errorf("long after it, a flood took %v", got)
		}
	})
}

// What comes slowly is no flood, however much it is: of many short turns, none waits for its reader.
func TestShortTurnsAreNoFlood(t *testing.T) {
	plan := func(s supervisor.Spec, _ int) supervisortest.Play {
		if s.ID == "other" {
			return supervisortest.Play{Prompt: supervisortest.UntilAborted}
		}
		return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
			c.Say("word")
			c.Finish(p, "word")
		}}
	}
	run(t, plan, func(h *house) {
		short, other := h.start("short"), h.start("other")
		turn := h.prompt(other, "1", "go on")
		for i := range 300 {
			time.Sleep(time.Millisecond) // in the bubble's time
			began := time.Now()
			if _, err := h.prompt(short, fmt.Sprint("short ", i), "say it").Wait(h.Context()); err != nil {
				h.Error(err)
			}
			if got := since(began); got != 0 {
				h.Errorf("beside a turn, short turn %d took %v", i, got)
			}
		}
		if _, err := other.Abort(h.Context(), turn.ID()); err != nil {
			h.Error(err)
		}
	})
}
