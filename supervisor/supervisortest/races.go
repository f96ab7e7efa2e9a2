package supervisortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Races runs prompts against whatever may end them, and checks that each has one
// outcome, which is the same for everybody.
type Races struct {
	Supervisor *supervisor.Supervisor
	// Spec is what the agent of that id is made of.
	Spec func(id string) supervisor.Spec
	// Crash ends an agent's process, if it has one.
	Crash func(a *supervisor.Agent)
	// Workers is how many agents there are at once, Rounds how many prompts each
	// gets.
	Workers, Rounds int
	// Pause is the longest time between the prompt and what races it.
	Pause time.Duration
}

// Run returns what was wrong, and how many turns had each outcome.
func (r Races) Run(ctx context.Context) (map[supervisor.Outcome]int, error) {
	var working sync.WaitGroup
	var mu sync.Mutex // guards what follows
	outcomes := map[supervisor.Outcome]int{}
	var wrong error
	for n := range r.Workers {
		working.Go(func() {
			w := &worker{Races: r, id: fmt.Sprint("racer-", n), told: map[string][]supervisor.Outcome{}}
			err := w.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			wrong = errors.Join(wrong, err)
			for _, o := range w.told {
				outcomes[o[0]]++
			}
		})
	}
	working.Wait()
	return outcomes, wrong
}

// worker owns one name. The agent of it may be replaced in each round.
type worker struct {
	Races
	id       string
	agent    *supervisor.Agent
	watching sync.WaitGroup

	mu     sync.Mutex // guards what follows
	told   map[string][]supervisor.Outcome
	ended  map[string][]supervisor.Outcome // by the turn_end events
	failed error
}

func (w *worker) run(ctx context.Context) error {
	w.ended = map[string][]supervisor.Outcome{}
	for i := range w.Rounds {
		if w.agent == nil {
			if err := w.start(ctx); err != nil {
				return err
			}
		}
		if err := w.round(ctx, fmt.Sprint(w.id, "-", i)); err != nil {
			return err
		}
	}
	if w.agent != nil {
		if err := w.Supervisor.Remove(ctx, w.id); err != nil {
			return err
		}
	}
	w.watching.Wait()
	wrong := w.failed
	for id, told := range w.told {
		for _, o := range told {
			if o != told[0] {
				wrong = errors.Join(wrong, fmt.Errorf("%s: callers were told %v", id, told))
				break
			}
		}
		if ended := w.ended[id]; len(ended) != 1 || ended[0] != told[0] {
			wrong = errors.Join(wrong, fmt.Errorf("%s: turn_end says %v, callers were told %v", id, ended, told))
		}
	}
	return wrong
}

// start makes the agent, and counts how its turns end.
func (w *worker) start(ctx context.Context) error {
	agent, err := w.Supervisor.Start(ctx, w.Spec(w.id))
	if err != nil {
		return err
	}
	sub, err := agent.Subscribe(0)
	if err != nil {
		return err
	}
	w.agent = agent
	w.watching.Go(func() {
		for {
			batch, err := sub.Next(ctx)
			if err != nil {
				return // it was removed; anything else shows as a turn without an end
			}
			for _, e := range batch {
				event, err := protocol.Frame{Type: e.Type, Raw: e.Data}.DecodeStreamEvent()
				if end, ok := event.(protocol.TurnEnd); ok && err == nil {
					w.mu.Lock()
					w.ended[end.TurnID] = append(w.ended[end.TurnID], supervisor.Outcome(end.Outcome))
					w.mu.Unlock()
				}
			}
		}
	})
	return nil
}

// round is one prompt and what races it.
func (w *worker) round(ctx context.Context, id string) error {
	p := protocol.Prompt{ID: id, Message: "race"}
	var o supervisor.PromptOptions
	removed := false
	var racers []func()
	cancel := func() { w.cancel(ctx, id) }
	switch rand.IntN(6) {
	case 0: // against its completion alone
	case 1:
		o.Timeout = 1 + rand.N(w.Pause+1)
	case 2:
		racers = append(racers, func() { w.Crash(w.agent) })
	case 3:
		racers = append(racers, func() { w.note(w.agent.Shutdown(ctx)) })
	case 4:
		removed = true
		racers = append(racers, func() { w.note(w.Supervisor.Remove(ctx, w.id)) })
	case 5:
		o.Timeout = 1 + rand.N(w.Pause+1)
		racers = append(racers, func() { w.Crash(w.agent) }, cancel)
	}
	turn, err := w.agent.Prompt(ctx, p, o)
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	var racing sync.WaitGroup
	racers = append(racers, cancel, cancel, func() {
		joined, err := w.agent.Prompt(ctx, p, o)
		switch {
		case err == nil:
			w.wait(ctx, joined)
		case !removed || !errors.Is(err, supervisor.ErrNotFound):
			w.note(fmt.Errorf("%s: join: %w", id, err))
		}
	})
	for _, f := range racers {
		racing.Go(func() { w.pause(); f() })
	}
	w.wait(ctx, turn)
	racing.Wait()
	if removed {
		w.agent = nil
	}
	return ctx.Err()
}

// pause lets others go first, now and then for longer.
func (w *worker) pause() {
	if rand.IntN(4) == 0 {
		<-time.NewTimer(rand.N(w.Pause + 1)).C
		return
	}
	for range rand.IntN(20) {
		runtime.Gosched()
	}
}

func (w *worker) wait(ctx context.Context, t *supervisor.Turn) {
	r, err := t.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		w.note(fmt.Errorf("%s never ended: %w", t.ID(), err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[t.ID()] = append(w.told[t.ID()], r.Outcome)
}

// cancel checks that a cancel gets the outcome that the sender gets.
func (w *worker) cancel(ctx context.Context, id string) {
	cancelled, err := w.agent.Abort(ctx, id)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, crashed := errors.AsType[*supervisor.CrashError](err); crashed {
		w.told[id] = append(w.told[id], supervisor.Crashed)
	} else if err != nil {
		w.failed = errors.Join(w.failed, fmt.Errorf("%s: cancel: %w", id, err))
	} else if cancelled {
		w.told[id] = append(w.told[id], supervisor.Cancelled)
	}
}

func (w *worker) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = errors.Join(w.failed, err)
}
