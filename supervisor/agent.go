package supervisor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// Agent is a durable identity with a conversation: a series of incarnations,
// one at a time. It is made by [Supervisor.Start].
type Agent struct {
	sup      *Supervisor
	spec     Spec
	launcher Launcher
	log      *zap.Logger
	created  time.Time
	memory   Memory
	fresh    bool // there was no memory before
	hub      hub
	since    uint64         // the number of the hub's last event at the beginning
	life     *Life          // of the Supervisor, whose mutex guards it
	removed  chan struct{}  // closed when nothing is left of it
	work     sync.WaitGroup // goroutines of incarnations; Go and Add only under mu

	accepting sync.Mutex // held while a prompt is looked up, recorded and entered; taken before mu

	mu           sync.Mutex // guards all below; never held while anything blocks
	state        State
	inc          *incarnation // nil unless Starting, Ready, Busy or Stopping
	incarnations uint64
	restarts     uint64
	ran          bool // an incarnation was ready once, so Spec.Resume applies
	turns        turnQueue
	calls        calls
	crashes      []time.Time // the last ones, oldest first
	starved      []time.Time // restarts that the server lacked something for, since one came to anything, oldest first
	timer        *time.Timer // of Backoff
	update       *protocol.SessionUpdate
	narrowed     unsaved
	lastError    string
	lastCrash    Reason // "" before the first
	lastRestart  Reason // what the last restart came after
	shutdown     bool   // Shutdown was the last thing asked for
	closed       error  // why nothing more is accepted; nil while it is
	removing     bool   // close was called
}

// Info describes an agent at one moment.
type Info struct {
	ID, Kind    string
	State       State
	PID         int    // 0 without a process
	Incarnation uint64 // counts from 1
	Restarts    uint64 // incarnations that were ready again after a crash
	LastRestart Reason // of the crash before the last of these; "" if there was none
	CreatedAt   time.Time
	Labels      map[string]string
	// ShouldShutdown says that Shutdown was called and nothing was asked of
	// the agent since.
	ShouldShutdown bool
	Queued         int // prompts that wait
	// Asked are the permission requests that wait for an answer, oldest first.
	Asked   []protocol.PermissionRequest
	Running string // id of the running turn, "" if none runs
	// Update is the child's last session_update, nil before the first. It must
	// not be changed.
	Update *protocol.SessionUpdate
	// Narrowed is what the agent holds and its session does not say, as that could not be
	// saved; nil for nothing. It must not be changed.
	Narrowed *protocol.Permissions
	// LastError says what the last crash or failed start was, "" if there was
	// none.
	LastError string
}

// newAgent makes an agent that remembers what memory has.
func newAgent(s *Supervisor, spec Spec, l Launcher, memory Memory) *Agent {
	spec.StartTimeout = cmp.Or(spec.StartTimeout, DefaultStartTimeout)
	spec.AbortGrace = cmp.Or(spec.AbortGrace, DefaultAbortGrace)
	spec.PingEvery = cmp.Or(spec.PingEvery, DefaultPingEvery)
	spec.PingTimeout = cmp.Or(spec.PingTimeout, DefaultPingTimeout)
	spec.QueueLimit = cmp.Or(spec.QueueLimit, DefaultQueueLimit)
	a := &Agent{
		sup: s, spec: spec, launcher: l,
		log:     s.log.With(zap.String("agent", spec.ID)),
		created: time.Now(),
		memory:  memory,
		removed: make(chan struct{}),
		calls:   newCalls(),
	}
	a.hub.slow = func() { s.count.slow.Add(1) }
	if memory.Events != nil {
		a.hub.log, a.hub.last = memory.Events, memory.Events.Last()
		a.hub.unread = func(err error) { a.log.Warn("events not read", zap.Error(err)) }
	}
	a.since = a.hub.last
	a.recall()
	return a
}

// ID is the agent's id.
func (a *Agent) ID() string { return a.spec.ID }

// Info describes the agent. It never waits for the child.
func (a *Agent) Info() Info {
	a.mu.Lock()
	defer a.mu.Unlock()
	info := Info{
		ID: a.spec.ID, Kind: a.spec.Kind, State: a.state,
		Incarnation: a.incarnations, Restarts: a.restarts, LastRestart: a.lastRestart, CreatedAt: a.created,
		Labels: maps.Clone(a.spec.Labels), ShouldShutdown: a.shutdown,
		Queued: len(a.turns.waiting), Update: a.update, Narrowed: a.narrowed.holds, LastError: a.lastError,
	}
	if a.inc != nil && a.inc.conn != nil {
		info.PID = a.inc.conn.PID()
	}
	if a.inc != nil {
		info.Asked = a.inc.permissions.waiting()
	}
	if a.turns.current != nil {
		info.Running = a.turns.current.id
	}
	return info
}

// Prompt hands the agent a prompt and returns once it is accepted; ctx is only
// looked at before that. p.ID is the request id, made here if empty. The same
// id with the same content joins the turn that waits or runs, or gives the
// outcome recorded for it (Result.Replayed); with other content it is
// ErrTurnConflict. A prompt to an agent in backoff waits for the restart; one
// to a stopped agent starts it. It waits for the prompt to be recorded. Errors:
// ErrQueueFull, ErrBusy, ErrFailed, ErrDraining, ErrNotFound (removed),
// ErrTurnConflict, ErrUnrecorded.
func (a *Agent) Prompt(ctx context.Context, p protocol.Prompt, o PromptOptions) (*Turn, error) {
	t, _, err := a.prompt(ctx, p, o)
	return t, err
}

// prompt is Prompt. fresh says that there was no such turn before.
func (a *Agent) prompt(ctx context.Context, p protocol.Prompt, o PromptOptions) (t *Turn, fresh bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	if p.ID == "" {
		p.ID = a.sup.nextID()
	}
	sum := digest(p)
	a.accepting.Lock()
	a.mu.Lock()
	t, fresh, err = a.enter(ctx, p, sum, o)
	a.accepting.Unlock()
	a.release()
	return t, fresh, err
}

// enter finds the turn of that id, or records a new one and enters it. mu is
// held, but for the record; accepting is held.
func (a *Agent) enter(ctx context.Context, p protocol.Prompt, sum [sha256.Size]byte, o PromptOptions) (t *Turn, fresh bool, err error) {
	if a.closed != nil {
		return nil, false, a.closed
	}
	if t := a.turns.known.find(p.ID); t != nil {
		if t.digest != sum {
			return nil, false, ErrTurnConflict
		}
		a.sup.count.repeats.Add(1)
		return t, false, nil
	}
	occupied := a.turns.occupied()
	switch {
	case a.state == Failed:
		return nil, false, a.failed()
	case o.WhenBusy == Reject && occupied:
		return nil, false, ErrBusy
	case len(a.turns.waiting) >= a.spec.QueueLimit:
		return nil, false, ErrQueueFull
	}
	t = newTurn(&a.mu, p, sum, o, a.spec.Limits)
	if err := a.hold(t); err != nil {
		return nil, false, err
	}
	a.work.Add(1) // the memory stays open
	defer a.work.Done()
	if err := a.accept(p.ID, sum); err != nil {
		a.letGo(t)
		return nil, false, err
	}
	a.turns.known.add(t)
	a.sup.count.prompts.Add(1)
	t.beginSpan(ctx, a)
	switch { // whatever happened meanwhile, it is accepted
	case a.closed != nil:
		a.finish(t, Cancelled, fmt.Errorf("%w: %w", ErrAborted, a.closed))
		a.flushElsewhere()
	case a.state == Failed:
		a.finish(t, Crashed, a.failed())
	case o.WhenBusy == Steer:
		a.turns.enqueueFirst(t)
		if a.turns.current != nil {
			a.abort(a.turns.current, errSteered)
		}
	default:
		a.turns.enqueue(t)
	}
	a.wakeUp()
	a.next()
	if o.Check != nil { // not before: what begins at once needs none
		t.check = func() error { return o.Check(ctx) }
	}
	return t, true, nil
}

// Do gives the child of an agent one command and returns its answer. A command to a
// stopped agent starts it; one to an agent that is starting or in backoff waits.
// Errors: *ChildError (also for an answer that cannot be read), *CrashError,
// *StartError, *CommandError, ErrFailed, ErrStopped, ErrQueueFull (256 are under way),
// ErrDraining, ErrNotFound, and that of ctx.
func Do[R any](ctx context.Context, a *Agent, c protocol.Request[R]) (R, error) {
	response, err := a.do(ctx, c, nil)
	if err != nil {
		var none R
		return none, err
	}
	answer, err := c.Answer(response)
	if err != nil {
		return answer, unreadable(c.Name(), err)
	}
	return answer, nil
}

// request is a protocol.Request of any answer.
type request interface {
	protocol.Command
	WithID(id string) protocol.Command
}

// do gives the child a command and returns its response, unless that is a refusal.
// Unless nil, check is called with the mutex held before the command is submitted; its
// error refuses it.
func (a *Agent) do(ctx context.Context, c request, check func() error) (protocol.Response, error) {
	if err := ctx.Err(); err != nil {
		return protocol.Response{}, err
	}
	answered := make(chan answer, 1) // one answer fits, so nobody waits to give it
	q := &call{command: c.WithID(a.sup.nextID()), deliver: func(r answer) { answered <- r }}
	if err := a.submit(q, check); err != nil {
		return protocol.Response{}, err
	}
	select {
	case r := <-answered:
		return r.response, r.err
	case <-ctx.Done():
		a.mu.Lock()
		a.calls.forget(q)
		a.mu.Unlock()
		return protocol.Response{}, ctx.Err()
	}
}

func (a *Agent) submit(q *call, check func() error) error {
	a.mu.Lock()
	defer a.release()
	switch {
	case a.closed != nil:
		return a.closed
	case a.calls.full():
		return ErrQueueFull
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	if a.state == Failed {
		return a.failed()
	}
	a.calls.enqueue(q)
	a.sendCalls()
	a.wakeUp()
	return nil
}

// Abort cancels a turn: one that waits at once, one that runs by asking the
// child, and then it returns when the turn has ended; "" means the one that
// runs. cancelled says that the turn ended as cancelled, by this cancel or by
// what came before it; false if no such turn is known, too. err is the turn's
// *CrashError if the child had to be killed, or that of ctx; the cancel goes on
// then.
func (a *Agent) Abort(ctx context.Context, turnID string) (cancelled bool, err error) {
	t, over := a.abortTurn(turnID, ErrAborted)
	if t == nil || over {
		return t != nil && t.result.Outcome == Cancelled, nil
	}
	select {
	case <-t.done:
		if t.result.Outcome == Crashed {
			return false, t.result.Err
		}
		return t.result.Outcome == Cancelled, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// abortTurn begins the cancel of a turn that waits or runs. It is over if it has
// ended and was told; nil if there is none. reason wraps ErrAborted.
func (a *Agent) abortTurn(turnID string, reason error) (t *Turn, over bool) {
	a.mu.Lock()
	defer a.release()
	t = a.turns.current
	if turnID != "" {
		t = a.turns.known.find(turnID)
	}
	switch {
	case t == nil || t.over():
		return t, t != nil
	case t.ended: // and is about to be told
	case t == a.turns.current:
		a.abort(t, reason)
	default:
		a.turns.remove(t)
		a.finish(t, Cancelled, reason)
	}
	return t, false
}

// Shutdown stops the agent's process by the ladder and returns when nothing is
// left of it. The running turn ends as the child ends it, what waits is
// cancelled. The agent stays listed, with its events; a prompt starts it
// again. A failed agent is stopped, and its crashes forgotten, by this too. If
// ctx ends first, the stop goes on and the error is that of ctx.
func (a *Agent) Shutdown(ctx context.Context) error {
	a.mu.Lock()
	if a.closed == nil {
		a.shutdown = true
	}
	gone := a.stop(ErrStopped)
	a.release()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Subscribe returns a place in the agent's events: after is the number of the
// last event that was seen, 0 for all that is kept. A gap event stands for what
// is not kept any more. A number above the last one is from an earlier agent of
// that name: then nothing of this one was seen. ErrNotFound if the agent was
// removed.
func (a *Agent) Subscribe(after uint64) (*Subscription, error) {
	return a.subscribe(func(uint64) uint64 { return after })
}

// SubscribeNew is Subscribe for only what comes.
func (a *Agent) SubscribeNew() (*Subscription, error) {
	return a.subscribe(func(last uint64) uint64 { return last })
}

// subscribe is Subscribe after the number that from makes of the last one.
func (a *Agent) subscribe(from func(last uint64) uint64) (*Subscription, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return nil, a.closed
	}
	return a.hub.subscribe(false, from), nil
}

// close refuses everything from now on and begins the stop. It reports false
// if that was done before.
func (a *Agent) close(reason error) bool {
	a.mu.Lock()
	defer a.releaseElsewhere() // the Supervisor's mutex is held
	if a.removing {
		return false
	}
	a.removing = true
	a.closed = reason
	if errors.Is(reason, ErrNotFound) {
		reason = ErrStopped
	}
	a.stop(reason)
	return true
}

// closeIdle refuses everything from now on, unless a prompt runs or waits, or is
// being recorded and will: ErrBusy.
func (a *Agent) closeIdle(reason error) error {
	a.accepting.Lock()
	defer a.accepting.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turns.occupied() {
		return ErrBusy
	}
	a.closed = cmp.Or(a.closed, reason)
	return nil
}

// join waits for all goroutines of a closed agent, and ends its events and what
// it remembers.
func (a *Agent) join() {
	a.work.Wait()
	a.hub.close()
	a.closeMemory()
}

// setState moves to next and tells subscribers, except for the moves between
// Ready and Busy, which turn_start and turn_end tell.
func (a *Agent) setState(next State, reason string) {
	a.state = a.state.move(next)
	a.log.Debug("state", zap.Stringer("state", next), zap.String("reason", reason))
	a.publishState(reason)
}

// failed is ErrFailed with the reason; the agent's mutex is held.
func (a *Agent) failed() error { return fmt.Errorf("%w: %s", ErrFailed, a.lastError) }

func (a *Agent) publish(typ string, data []byte) {
	a.sup.count.events.Add(1)
	a.hub.publish(typ, data)
}

var errSteered = fmt.Errorf("%w: steered to another prompt", ErrAborted)
