package supervisor_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// distant are records that other machines have, too, and whether these have them.
type distant struct {
	both
	settled func() error
}

func (d distant) Settle() error { return d.settled() }

// far has the same records for all agents of a test, of which other machines say that.
func far(settled func() error) func(string) supervisor.Records {
	return func(string) supervisor.Records { return distant{both{&ledger{}, &diary{}}, settled} }
}

// An outcome that the other machines have not is told to nobody: neither to the sender nor by an event. The agent goes on.
func TestOutcomeThatIsNotSettled(t *testing.T) {
	var fails error
	remembering(t, far(func() error { return fails }), series(supervisortest.Play{}), func(h *house) {
		a := h.start("alice")
		sub := h.subscribe(a, 0)
		defer sub.Close()
		fails = supervisor.ErrNoMajority
		got, err := h.prompt(a, "1", "hi").Wait(h.Context())
		if !errors.Is(err, supervisor.ErrNoMajority) || got.Outcome != "" || got.Text != "" || got.TurnID != "1" {
			h.Errorf("%+v, %v", got, err)
		}
		fails = nil
		h.outcome(h.prompt(a, "2", "hi"), supervisor.Completed)
		var ends []string
		for !slices.Contains(ends, "2") {
			batch, err := sub.Next(h.Context())
			if err != nil {
				h.Fatal(err)
			}
			for _, e := range batch {
				if e.Type == "turn_end" {
					ends = append(ends, gjson.GetBytes(e.Data, "turn_id").Str)
				}
			}
		}
		if !slices.Equal(ends, []string{"2"}) {
			h.Errorf("the turns that are said to have ended: %v", ends)
		}
	})
}

// The process of an agent that another machine has taken is killed at once, however long it would take to end, and nothing that it did is told.
func TestEvict(t *testing.T) {
	plays := series(supervisortest.Play{StopAfter: time.Hour, Prompt: func(c *supervisortest.Child, _ protocol.Prompt) { <-c.Gone() }})
	kept := &ledger{}
	records := func(string) supervisor.Records {
		return distant{both{kept, &diary{}}, func() error { return supervisor.ErrMoved }}
	}
	remembering(t, records, plays, func(h *house) {
		a := h.start("alice")
		running, waiting := h.prompt(a, "1", "work"), h.prompt(a, "2", "wait")
		began := time.Now()
		if err := h.sup.Evict(h.Context(), "alice"); err != nil {
			h.Fatal(err)
		}
		if took := time.Since(began); took > 0 { // in the bubble's time
			h.Errorf("it took %s", took)
		}
		for _, turn := range []*supervisor.Turn{running, waiting} {
			if got, err := turn.Wait(h.Context()); !errors.Is(err, supervisor.ErrMoved) || got.Outcome != "" {
				h.Errorf("%+v, %v", got, err)
			}
		}
		if len(kept.results) > 0 { // which would be told if the agent came back before that machine began with it
			h.Errorf("recorded: %+v", kept.results)
		}
		if _, err := a.Prompt(h.Context(), protocol.Prompt{Message: "more"}, supervisor.PromptOptions{}); !errors.Is(err, supervisor.ErrMoved) {
			h.Errorf("it is asked again: %v", err)
		}
		if err := h.sup.Evict(h.Context(), "alice"); !errors.Is(err, supervisor.ErrNotFound) {
			h.Errorf("twice: %v", err)
		}
	})
}
