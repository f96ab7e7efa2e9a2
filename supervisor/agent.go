package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// Agent is a durable identity with a conversation: a series of incarnations,
// one at a time. It is made by [Supervisor.Start].
type Agent struct {
	sup          *Supervisor
	spec         Spec
	launcher     Launcher
	log          *zap.Logger
	created      time.Time
	records      Records
	fresh        bool // nothing was kept before
	hub          hub
	since        uint64         // the number of the hub's last event at the beginning
	origin       Origin         // of its records
	registration *Registration  // of the Supervisor, whose mutex guards it
	removed      chan struct{}  // closed when nothing is left of it
	work         sync.WaitGroup // goroutines of incarnations; Go and Add only within updates

	stateMu sync.Mutex // guards what follows; never held while anything blocks
	guarded agentState // once it is made, only update touches it
}

// Info describes an agent at one moment.
type Info struct {
	ID          string
	Kind        string // of Spec.Program; "" for an agent of nexus
	State       State
	PID         int    // 0 without a process
	Incarnation uint64 // counts from 1
	Restarts    uint64 // incarnations that were ready again after a crash
	LastRestart Reason // of the crash before the last of these; "" if there was none
	CreatedAt   time.Time
	Labels      Labels
	TakenFrom   string  // the machine of a cluster that had the agent until it was gone, "" for none
	MaxAgents   *uint64 // as Spec.MaxAgents, or what SetLimits made of it
	// ShouldShutdown says that Shutdown was called and nothing was asked of
	// the agent since.
	ShouldShutdown bool
	Waiting        []string // ids of the prompts that wait, oldest first
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

// newAgent makes an agent that goes on where its records end.
func newAgent(s *Supervisor, spec Spec, records Records) *Agent {
	spec.AbortGrace = cmp.Or(spec.AbortGrace, DefaultAbortGrace)
	spec.PingEvery = cmp.Or(spec.PingEvery, DefaultPingEvery)
	spec.PingTimeout = cmp.Or(spec.PingTimeout, DefaultPingTimeout)
	spec.QueueLimit = cmp.Or(spec.QueueLimit, DefaultQueueLimit)
	a := &Agent{
		sup: s, spec: spec, launcher: s.launcher,
		log:     s.log.With(zap.String("agent", spec.ID)),
		created: time.Now(),
		records: records,
		removed: make(chan struct{}),
	}
	a.guarded = agentState{agent: a, calls: newCalls(), limits: spec.Limits, maxAgents: spec.MaxAgents, backoff: backoff{policy: spec.Policy}}
	a.hub.agent, a.hub.slow, a.hub.errors = a, &s.count.slow, a.log
	a.hub.log, a.hub.last = records, records.Last()
	a.since = a.hub.last
	a.origin = records.Origin()
	a.guarded.turns.known = a.restore()
	return a
}

// ID is the agent's id.
func (a *Agent) ID() string { return a.spec.ID }

// Info describes the agent. It never waits for the child.
func (a *Agent) Info() Info {
	info := Info{ID: a.spec.ID, CreatedAt: a.created, Labels: a.spec.Labels, TakenFrom: a.origin.Machine}
	if a.spec.Program != nil {
		info.Kind = a.spec.Program.Kind
	}
	a.update(func(s *agentState) []effect {
		info.State, info.Incarnation, info.Restarts, info.LastRestart = s.state, s.incarnations, s.restarts, s.lastRestart
		info.ShouldShutdown, info.LastError = s.shutdown, s.lastError
		info.Update, info.Narrowed = s.session, s.narrowed.holds
		info.Waiting, info.MaxAgents = s.turns.waitingIDs(), s.maxAgents
		if s.turns.current != nil {
			info.Running = s.turns.current.id
		}
		if s.inc != nil {
			info.Asked = s.inc.permissions.waiting()
			if s.inc.conn != nil {
				info.PID = s.inc.conn.PID()
			}
		}
		return nil
	})
	return info
}

// SetLimits puts other limits in the place of Spec.Limits and Spec.MaxAgents: for turns
// that are accepted later, and for processes that start later.
func (a *Agent) SetLimits(l Limits, maxAgents uint64) {
	a.update(func(s *agentState) []effect {
		s.limits, s.maxAgents = l, &maxAgents
		return nil
	})
}

// Prompt hands the agent a prompt and returns once it is accepted; ctx is only
// looked at before that. p.ID is the request id, made here if empty. The same
// id with the same content joins the turn that waits or runs, or gives the
// outcome recorded for it (Result.Replayed); with other content it is
// ErrTurnConflict. A prompt to an agent in backoff waits for the restart; one
// to a stopped agent starts it. It waits for the prompt to be recorded. Errors:
// ErrQueueFull, ErrBusy, ErrFailed, ErrDraining, ErrNotFound (removed),
// ErrTurnConflict, ErrUnrecorded, and that of ctx.
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
	digest := digest(p)
	for {
		var known <-chan struct{}
		a.update(func(s *agentState) []effect {
			if known = cmp.Or(s.turns.beingRecorded(p.ID), s.inc.burial()); known == nil {
				t, fresh, err = s.admit(p, digest, o)
			}
			return nil
		})
		if known == nil {
			break
		}
		select { // that id is known after that, or free, and so is what follows a crash
		case <-known:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	if !fresh {
		return t, false, err
	}
	err = a.record(t)
	a.update(func(s *agentState) []effect {
		defer a.work.Done() // of admit; after what is due
		s.turns.recorded(t)
		if err == nil {
			s.enter(ctx, t, o)
		} else {
			t.drop(&a.sup.budget)
		}
		return s.here()
	})
	if err != nil {
		return nil, false, err
	}
	return t, true, nil
}

func (a *Agent) record(t *Turn) error {
	accept := a.records.Accept
	if t.unnamed {
		accept = a.records.AcceptUnnamed
	}
	if err := accept(t.id, t.digest); err != nil {
		a.log.Warn("prompt refused", zap.Error(err))
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	return nil
}

// Do gives the child of an agent one command and returns its answer. A command to a
// stopped agent starts it; one to an agent that is starting or in backoff waits.
// Errors: *ChildError (also for an answer that cannot be read), *CrashError,
// *StartError, *CommandError, ErrFailed, ErrStopped, ErrQueueFull (256 are under way),
// ErrDraining, ErrNotFound, and that of ctx.
func Do[R any](ctx context.Context, a *Agent, c protocol.Request[R]) (R, error) {
	return DoLimited(ctx, a, c, "")
}

// DoLimited is Do on behalf of somebody who has but a share of those that may be under way, as with
// PromptOptions.Limited.
func DoLimited[R any](ctx context.Context, a *Agent, c protocol.Request[R], limited string) (R, error) {
	response, err := a.do(ctx, c, limited, nil)
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
// Unless nil, check is called in the update that submits the command; its error refuses
// it.
func (a *Agent) do(ctx context.Context, c request, limited string, check func(*agentState) error) (protocol.Response, error) {
	if err := ctx.Err(); err != nil {
		return protocol.Response{}, err
	}
	answered := make(chan answer, 1) // one answer fits, so nobody waits to give it
	q := &call{command: c.WithID(a.sup.nextID()), of: limited, deliver: func(r answer) { answered <- r }}
	var err error
	a.update(func(s *agentState) []effect {
		err = s.submit(q, check)
		return s.here()
	})
	if err != nil {
		return protocol.Response{}, err
	}
	select {
	case r := <-answered:
		return r.response, r.err
	case <-ctx.Done():
		a.update(func(s *agentState) []effect {
			s.calls.forget(q)
			return nil
		})
		return protocol.Response{}, ctx.Err()
	}
}

// submit has the child given a command once it can be.
func (s *agentState) submit(q *call, check func(*agentState) error) error {
	if s.closed != nil {
		return s.closed
	}
	if err := s.calls.room(q.of); err != nil {
		return err
	}
	if check != nil {
		if err := check(s); err != nil {
			return err
		}
	}
	if s.state == Failed {
		return s.failed()
	}
	s.calls.enqueue(q)
	s.sendCalls()
	s.wakeUp()
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
	a.update(func(s *agentState) []effect {
		t = s.turns.current
		if turnID != "" {
			t = s.turns.known.find(turnID)
		}
		switch {
		case t == nil:
		case t.over():
			over = true
		case t.ended: // and is about to be told
		case t == s.turns.current:
			s.abort(t, reason)
		default:
			s.turns.remove(t)
			s.finish(t, Cancelled, reason)
		}
		return s.here()
	})
	return t, over
}

// Shutdown stops the agent's process by the ladder and returns when nothing is
// left of it. The running turn ends as the child ends it, what waits is
// cancelled. The agent stays listed, with its events; a prompt starts it
// again. A failed agent is stopped, and its crashes forgotten, by this too. If
// ctx ends first, the stop goes on and the error is that of ctx.
func (a *Agent) Shutdown(ctx context.Context) error {
	var gone <-chan struct{}
	a.update(func(s *agentState) []effect {
		if s.closed == nil {
			s.shutdown = true
		}
		gone = s.stop(ErrStopped)
		return s.here()
	})
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

// LastEvent is the number of the agent's last event; 0 if there was none.
func (a *Agent) LastEvent() uint64 { return a.hub.number() }

// SubscribeNew is Subscribe for only what comes.
func (a *Agent) SubscribeNew() (*Subscription, error) {
	return a.subscribe(func(last uint64) uint64 { return last })
}

// subscribe is Subscribe after the number that from makes of the last one.
func (a *Agent) subscribe(from func(last uint64) uint64) (sub *Subscription, err error) {
	a.update(func(s *agentState) []effect {
		if err = s.closed; err == nil {
			sub = a.hub.subscribe(false, from)
		}
		return nil
	})
	return sub, err
}

// close refuses everything from now on and begins the stop. It reports false
// if that was done before.
func (a *Agent) close(reason error) (begun bool) {
	a.update(func(s *agentState) []effect {
		if s.removing {
			return nil
		}
		begun, s.removing, s.closed = true, true, reason
		if errors.Is(reason, ErrNotFound) {
			reason = ErrStopped
		}
		s.stop(reason)
		return s.elsewhere() // the Supervisor's mutex is held
	})
	return begun
}

// closeIdle refuses everything from now on, unless a prompt runs, waits or is being
// recorded: ErrBusy.
func (a *Agent) closeIdle(reason error) (err error) {
	a.update(func(s *agentState) []effect {
		if s.turns.occupied() {
			err = ErrBusy
		} else {
			s.closed = cmp.Or(s.closed, reason)
		}
		return nil
	})
	return err
}

// join waits for all goroutines of an agent that was closed for a reason, and ends its events and
// records.
func (a *Agent) join(reason error) {
	a.work.Wait()
	a.hub.close(errors.Is(reason, ErrMoved))
	a.closeRecords()
}

func (a *Agent) publish(typ string, data []byte) {
	a.sup.count.events.Add(1)
	a.hub.publish(typ, data)
}

var errSteered = fmt.Errorf("%w: steered to another prompt", ErrAborted)
