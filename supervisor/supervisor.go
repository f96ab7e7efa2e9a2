package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/tracing"
)

// DefaultStopTimeout is how long Run waits for all agents to stop: longer than
// the whole ladder of SPEC §5.5.
const DefaultStopTimeout = 15 * time.Second

// Options are what a Supervisor is made of.
type Options struct {
	// Launcher makes incarnations. Required.
	Launcher Launcher
	// Log may be nil: nothing is logged then.
	Log *zap.Logger
	// Store opens the records of agents. Nil: nothing is kept of them.
	Store Store
	// Trace begins a span for each turn. Nil begins none.
	Trace tracing.Start
	// StopTimeout bounds Run's wait at the end; 0 means DefaultStopTimeout.
	StopTimeout time.Duration
}

// Supervisor is a set of agents.
type Supervisor struct {
	launcher    Launcher
	log         *zap.Logger
	stopTimeout time.Duration
	spread      func() float64 // numbers in [0,1) that spread restarts in time
	count       counters
	trace       tracing.Start
	restarts    restarts
	activity    activity  // of all agents
	store       Store     // may be nil
	waits       waitGraph // between agents, by host calls
	idPrefix    string    // of the ids that we make, hard to guess
	ids         atomic.Uint64
	budget      promptBudget // of the prompts of all agents that are not sent for the last time

	mu       sync.Mutex // guards all below
	agents   map[string]*Agent
	history  history
	changed  chan struct{}   // closed and replaced when agents does
	opening  map[string]bool // ids of those to come, whose records are being opened
	draining bool
	removals sync.WaitGroup // of agents, and of openings; Add only under mu
}

// New returns a Supervisor without agents.
func New(o Options) *Supervisor {
	s := &Supervisor{
		launcher:    o.Launcher,
		log:         o.Log,
		stopTimeout: cmp.Or(o.StopTimeout, DefaultStopTimeout),
		spread:      rand.Float64,
		trace:       o.Trace,
		restarts:    newRestarts(),
		store:       o.Store,
		idPrefix:    "nx-" + strconv.FormatUint(rand.Uint64(), 36) + "-",
		agents:      map[string]*Agent{},
		history:     newHistory(),
		changed:     make(chan struct{}),
		opening:     map[string]bool{},
	}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	return s
}

func (s *Supervisor) nextID() string {
	return s.idPrefix + strconv.FormatUint(s.ids.Add(1), 10)
}

// Run waits until ctx ends, then stops all agents in parallel and returns when
// none is left. From then on nothing is accepted (ErrDraining). What ran or
// waited ends as cancelled. The error is *UnstoppedError if some agents are
// still there after StopTimeout, else nil.
func (s *Supervisor) Run(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.draining = true
	agents := make([]*Agent, 0, len(s.agents))
	for _, a := range s.agents {
		s.closeAgent(a, ErrDraining)
		agents = append(agents, a)
	}
	s.mu.Unlock()

	timeout := time.NewTimer(s.stopTimeout)
	defer timeout.Stop()
	for i, a := range agents {
		select {
		case <-a.removed:
			continue
		case <-timeout.C:
		}
		var left []string
		for _, a := range agents[i:] {
			select {
			case <-a.removed:
			default:
				left = append(left, a.spec.ID)
			}
		}
		if len(left) > 0 {
			slices.Sort(left)
			return &UnstoppedError{IDs: left, After: s.stopTimeout}
		}
		break
	}
	s.removals.Wait()
	return nil
}

// Start launches a new agent and returns when it is ready. ctx bounds the
// start alone, as does StartTimeout. Errors: ErrExists, ErrDraining, or
// why it did not become ready (*StartError); then nothing is kept.
func (s *Supervisor) Start(ctx context.Context, spec Spec) (*Agent, error) {
	a, inc, err := s.enter(ctx, spec)
	if err != nil {
		return nil, err
	}
	<-inc.settled
	if inc.err != nil {
		s.mu.Lock()
		s.closeAgent(a, ErrNotFound)
		s.mu.Unlock()
		<-a.removed
		return nil, fmt.Errorf("start %s: %w", spec.ID, inc.err)
	}
	return a, nil
}

// enter opens the records of a new agent, enters it and launches its first
// incarnation.
func (s *Supervisor) enter(ctx context.Context, spec Spec) (*Agent, *incarnation, error) {
	s.mu.Lock()
	switch {
	case s.draining:
		s.mu.Unlock()
		return nil, nil, ErrDraining
	case s.agents[spec.ID] != nil || s.opening[spec.ID]:
		s.mu.Unlock()
		return nil, nil, ErrExists
	}
	s.opening[spec.ID] = true
	s.removals.Add(1)
	s.mu.Unlock()
	defer s.removals.Done()

	var a *Agent
	records, err := s.open(spec) // no lock is held: the disk may be slow
	if err == nil {
		a = newAgent(s, spec, records)
	} else {
		err = fmt.Errorf("start %s: %w", spec.ID, &StartError{Err: err})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.opening, spec.ID)
	switch {
	case err != nil:
		return nil, nil, err
	case s.draining:
		a.closeRecords()
		return nil, nil, ErrDraining
	}
	s.agents[spec.ID] = a
	a.registration = s.history.begin(a)
	s.notify()
	return a, a.start(ctx), nil
}

func (s *Supervisor) open(spec Spec) (Records, error) {
	if s.store == nil {
		return NoRecords{}, nil
	}
	return s.store.Open(spec.ID, spec.Fresh)
}

// Agent finds an agent by its id; ErrNotFound if there is none.
func (s *Supervisor) Agent(id string) (*Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[id]; a != nil {
		return a, nil
	}
	return nil, ErrNotFound
}

// notify wakes those that watch; mu is held.
func (s *Supervisor) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// all are the agents there are now, in no order.
func (s *Supervisor) all() []*Agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.agents))
}

// Count is how many agents there are.
func (s *Supervisor) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.agents)
}

// Agents describes all agents, sorted by id.
func (s *Supervisor) Agents() []Info {
	agents := s.all()
	infos := make([]Info, len(agents))
	for i, a := range agents {
		infos[i] = a.Info()
	}
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Compare(a.ID, b.ID) })
	return infos
}

// Remove stops an agent by the ladder and forgets it. What ran or waited ends
// as cancelled, subscriptions end. It returns when nothing is left of the
// agent; if ctx ends first, the removal goes on and the error is that of ctx.
// An agent that is not there is ErrNotFound.
func (s *Supervisor) Remove(ctx context.Context, id string) error {
	return s.remove(ctx, id, ErrNotFound)
}

func (s *Supervisor) remove(ctx context.Context, id string, reason error) error {
	s.mu.Lock()
	a := s.agents[id]
	if a == nil {
		s.mu.Unlock()
		return ErrNotFound
	}
	s.closeAgent(a, reason)
	s.mu.Unlock()
	return awaitRemoval(ctx, a)
}

// awaitRemoval waits until nothing is left of an agent that was closed.
func awaitRemoval(ctx context.Context, a *Agent) error {
	select {
	case <-a.removed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Evict is Remove of an agent that another machine has taken: its process is killed at once, and what ran or waited
// ends with ErrMoved, unless its records say otherwise.
func (s *Supervisor) Evict(ctx context.Context, id string) error {
	s.mu.Lock()
	a := s.agents[id]
	if a == nil {
		s.mu.Unlock()
		return ErrNotFound
	}
	a.update(func(s *agentState) []effect {
		if s.inc != nil && s.inc.conn != nil {
			s.markLost(s.inc, ReasonExit, ErrMoved.Error())
		}
		return s.elsewhere()
	})
	s.closeAgent(a, ErrMoved)
	s.mu.Unlock()
	return awaitRemoval(ctx, a)
}

// RemoveIdle is Remove for an agent without a prompt that runs or waits; ErrBusy if
// one does. From then on none is accepted.
func (s *Supervisor) RemoveIdle(ctx context.Context, id string) error {
	return s.removeIdle(ctx, id, ErrNotFound)
}

// MoveIdle is RemoveIdle for an agent that another machine is to have: to those that follow its events it has moved.
func (s *Supervisor) MoveIdle(ctx context.Context, id string) error {
	return s.removeIdle(ctx, id, ErrMoved)
}

func (s *Supervisor) removeIdle(ctx context.Context, id string, reason error) error {
	a, err := s.Agent(id)
	if err != nil {
		return err
	}
	if err := a.closeIdle(reason); err != nil {
		return err
	}
	return s.remove(ctx, id, reason)
}

// closeAgent begins the removal of a; s.mu is held. The goroutine that sees it
// through is joined by a.removed and by Run.
func (s *Supervisor) closeAgent(a *Agent, reason error) {
	if !a.close(reason) {
		return
	}
	s.removals.Go(func() {
		a.join(reason)
		s.mu.Lock()
		delete(s.agents, a.spec.ID)
		s.history.end(a.registration)
		s.notify()
		s.mu.Unlock()
		close(a.removed)
	})
}
