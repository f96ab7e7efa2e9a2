package clusterchaos

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

const (
	// followTimeout is how long one machine is followed: then the next one is, from where that was.
	followTimeout = 20 * time.Second
	// replayTimeout bounds the reading of all events of an agent at one machine.
	replayTimeout = time.Minute
)

// follower reads the events of one agent, at one machine after another, going on by number.
type follower struct {
	r     *run
	agent string
	draws *rand.Rand

	mu  sync.Mutex // guards all
	all *events
}

func (r *run) newFollower(agent string, number int) *follower {
	return &follower{r: r, agent: agent, draws: rand.New(rand.NewPCG(r.o.Seed, 1<<33+uint64(number))), all: newEvents()} //nolint:gosec // a small number
}

// follow reads until ctx ends.
func (f *follower) follow(ctx context.Context) {
	var last uint64
	for ctx.Err() == nil {
		m := f.r.machines[f.draws.IntN(len(f.r.machines))]
		limited, cancel := context.WithTimeout(ctx, followTimeout)
		last, _ = f.read(limited, m, last, "")
		cancel()
		pause(ctx, 100*time.Millisecond)
	}
}

// read reads what a machine tells of the events after a number, until the turn has ended, the connection does or ctx. It returns the last number, and whether the turn has ended.
func (f *follower) read(ctx context.Context, m *machine, last uint64, turn string) (now uint64, ended bool) {
	c := m.call()
	if c == nil {
		return last, false
	}
	for event, err := range c.Events(ctx, f.agent, last, client.Filter{}) {
		if err != nil || event.Type == "end" {
			return last, false
		}
		e := look(event)
		f.mu.Lock()
		broken := f.all.take(last, e)
		f.mu.Unlock()
		if broken != "" {
			f.r.broken("%s at %s: %s", f.agent, m.name, broken)
		}
		if last = e.seq; turn != "" && e.turn == turn {
			return last, true
		}
	}
	return last, false
}

// look is what is checked of an event.
func look(event client.Event) seen {
	h := fnv.New64a()
	_, _ = h.Write(event.Data) // it does not fail
	e := seen{seq: event.Seq, from: event.Seq, sum: h.Sum64()}
	frame, _ := event.Decode() // nil if it cannot be read: then it only counts
	switch told := frame.(type) {
	case protocol.Gap:
		e.from, e.gap, e.sum = told.From, true, 0
	case protocol.TurnEnd:
		e.turn, e.outcome = told.TurnID, told.Outcome
	}
	return e
}

// ended is how a turn has ended as events tell; "" if none did.
func (f *follower) ended(turn string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all.ends[turn]
}

// counts are how many events were seen, and how many gaps.
func (f *follower) counts() (events, gaps int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all.sums), f.all.gaps
}

// replay reads all events at a machine once more, up to the end of a turn.
func (f *follower) replay(ctx context.Context, m *machine, turn string) {
	limited, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	for limited.Err() == nil {
		if _, ended := f.read(limited, m, 0, turn); ended {
			return
		}
		pause(limited, 100*time.Millisecond)
	}
	if ctx.Err() == nil {
		f.r.broken("the events of %s at %s do not come to the end of %s", f.agent, m.name, turn)
	}
}
