package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor"
)

// Claims say which machine of a cluster has an agent. Of each name one machine has it, running or saved. It is safe for
// concurrent use.
type Claims interface {
	// Self is the name of this machine.
	Self() string
	// Owner is the machine that has claimed an agent, as it is known here; ok is false if none has.
	Owner(agent string) (machine string, ok bool)
	// Owned are the agents that this machine has claimed.
	Owned() []string
	// Claim makes an agent this machine's if no machine has it, and returns whose it is now.
	Claim(ctx context.Context, agent string) (owner string, err error)
	// Release gives up this machine's claim; it is no error if it has none.
	Release(ctx context.Context, agent string) error

	// Check says why it is not known here which machine has which agent; nil if it is.
	Check() error
	// Prepare sees that what is saved here of an agent that this machine has claimed is what the machine had that had the
	// agent before. No process of the agent runs.
	Prepare(ctx context.Context, agent string) error
	// Orphans are agents of machines that are gone, which this machine is to take over now.
	Orphans(ctx context.Context) []string
	// TakeOver makes an agent this machine's that is of a machine that is gone. It is no error if another machine was quicker.
	TakeOver(ctx context.Context, agent string) error
	// Taken are the agents that this machine had and another one has had since.
	Taken(ctx context.Context) []string
	// GiveUp sets aside what is saved here of an agent that is Taken. No process of the agent runs.
	GiveUp(ctx context.Context, agent string) error
	// Ship returns once a majority of the machines has what is saved of an agent that this one has claimed.
	Ship(ctx context.Context, agent string) error
	// LookAt has look read what the machines have of another machine's agent, as it was shipped last, in a catalogue that is gone afterwards; without a call if
	// nothing was shipped of it. The error may be look's.
	LookAt(ctx context.Context, agent string, look func(*sessions.Catalogue) error) error
	// Draining reports whether this machine is to have no agents: those that others can have are handed over.
	Draining() bool
	// Drain says whether this machine is to have no agents, also after a restart.
	Drain(on bool) error
	// Takers are the machines that could have an agent of this machine, as they share its directory, whether they are up or not. If there are none, why says what
	// binds the agent to this machine; it is "" while that is not known, as the agent has just come.
	Takers(agent string) (machines []string, why string)
	// HandOver makes an agent of this machine that of another one, which has then what is saved of it. No process of the agent runs. What is saved here is
	// Taken then. After an error it is this machine's still, unless Owner says otherwise.
	HandOver(ctx context.Context, agent, to string) error
	// Forget removes what the other machines have of an agent that this one has claimed.
	Forget(ctx context.Context, agent string) error
	// Leave says, before that is done, that what is saved here of an agent gets another name. No process of the agent runs.
	Leave(agent string) error
}

// elsewhere is the other machine that has an agent, as it is known here; "" for none.
func elsewhere(r *Registry, id string) string {
	if r.o.Claims == nil {
		return ""
	}
	if machine, known := r.o.Claims.Owner(id); known && machine != r.o.Claims.Self() {
		return machine
	}
	return ""
}

// claimedElsewhere is the error of an agent that is to be started.
func claimedElsewhere(e *rpc.ClaimedError) error {
	return &api.Error{
		Kind: api.KindAgentExists, About: e.Agent, Details: e.Error(), Err: e,
		Suggestions: []string{"Send it again: that machine answers. Or use another name."},
	}
}

// claim makes an agent this machine's. The error is a *rpc.ClaimedError, or NO_QUORUM. The lock of its id is held.
func claim(ctx context.Context, r *Registry, id string) error {
	if r.o.Claims == nil {
		return nil
	}
	self := r.o.Claims.Self()
	owner, known := r.o.Claims.Owner(id)
	if !known {
		var err error
		if owner, err = r.o.Claims.Claim(context.WithoutCancel(ctx), id); err != nil {
			return NoQuorum(err, "which machine is to have %s is not agreed on", id)
		}
	}
	if owner != self {
		return &rpc.ClaimedError{Agent: id, Machine: owner}
	}
	return prepare(ctx, r, id)
}

// ours reports whether this machine of a cluster has claimed an agent.
func ours(r *Registry, id string) bool {
	if r.o.Claims == nil {
		return false
	}
	owner, known := r.o.Claims.Owner(id)
	return known && owner == r.o.Claims.Self()
}

// prepare sees that what is saved of an agent that this machine has claimed is here. The lock of its id is held. The error is NO_QUORUM without a
// majority, else what is wrong with what they have.
func prepare(ctx context.Context, r *Registry, id string) error {
	if !ours(r, id) {
		return nil
	}
	err := r.o.Claims.Prepare(context.WithoutCancel(ctx), id)
	if errors.Is(err, supervisor.ErrNoMajority) {
		return NoQuorum(err, "what the machines have of %s could not be fetched", id)
	}
	return err
}

// Arrive sees that what is saved of the agents that this machine has claimed is here, as of those that were just handed over to it. What is being done for one already is not
// waited for; what fails is tried again by others.
func Arrive(ctx context.Context, r *Registry) {
	if r.o.Claims == nil || r.o.Claims.Check() != nil {
		return
	}
	missing := slices.DeleteFunc(r.o.Claims.Owned(), func(id string) bool {
		_, err := r.o.Supervisor.Agent(id)
		return err == nil || api.IsTemp(id) || r.o.Sessions.There(id)
	})
	each(missing, moving, func(id string) {
		if unlock, free := r.locks.tryLock(id); free {
			defer unlock()
			if err := prepare(ctx, r, id); err != nil {
				r.log.Info("fetch what the machines have of an agent; it is tried again", zap.String("agent", id), zap.Error(err))
			}
		}
	})
}

// arrive is Arrive for one agent, that waits for what is being done. The lock of its id is not held. The error is that of prepare.
func arrive(ctx context.Context, r *Registry, id string) error {
	if !ours(r, id) || r.o.Sessions.There(id) {
		return nil
	}
	defer r.locks.Lock(id)()
	return prepare(ctx, r, id)
}

// forget has the other machines forget an agent that is to be deleted here: else one of them might bring it back. The lock of its
// id is held. The error is NO_QUORUM.
func forget(ctx context.Context, r *Registry, id string) error {
	if !ours(r, id) {
		return nil
	}
	err := r.o.Claims.Forget(context.WithoutCancel(ctx), id)
	if errors.Is(err, supervisor.ErrNoMajority) {
		return NoQuorum(err, "the machines that have %s, too, did not forget it", id)
	}
	return err
}

// ship has a majority of the machines have what is saved under a name that was just given to it. The lock of its id is held.
func ship(ctx context.Context, r *Registry, id string) {
	if !ours(r, id) {
		return
	}
	if err := r.o.Claims.Ship(context.WithoutCancel(ctx), id); err != nil {
		r.log.Warn("what is saved of an agent is on this machine alone; it is tried again", zap.String("agent", id), zap.Error(err))
	}
}

// leave says that what is saved under a name is about to get another one. The lock of its id is held.
func leave(r *Registry, id string) error {
	if !ours(r, id) {
		return nil
	}
	return r.o.Claims.Leave(id)
}

// NoQuorum is the error of what a majority of the machines did not agree on: what is said of the id.
func NoQuorum(err error, what, id string) error {
	return &api.Error{
		Kind: api.KindNoQuorum, Details: fmt.Sprintf(what, id) + ", and nothing was accepted: " + err.Error(), Err: err,
		Suggestions: []string{"Send it again when a majority of the machines is there."},
	}
}

// Elsewhere is the other machine that has an agent, as far as is known here; "" for none.
func Elsewhere(r *Registry, id string) string {
	if r.o.Claims == nil {
		return ""
	}
	if owner, known := r.o.Claims.Owner(id); known && owner != r.o.Claims.Self() {
		return owner
	}
	return ""
}

// hasByNow is the error of what was asked of an agent by somebody who did not know a moment ago that another machine has it: a machine that
// has passed it on, or this one.
func hasByNow(e *rpc.ClaimedError) error {
	return &api.Error{
		Kind: api.KindNodeUnreachable, Details: fmt.Sprintf("the machine %s has %s by now, and nothing was accepted", e.Machine, e.Agent),
		Err:         &rpc.MovedError{Agent: e.Agent, Machine: e.Machine, Err: e},
		Suggestions: []string{"Send it again: that machine answers."},
	}
}

// Moved implements [rpc.Access].
func (a Access) Moved(agent, machine string) error {
	return hasByNow(&rpc.ClaimedError{Agent: agent, Machine: machine})
}

// Machine is the machine that has an agent, this one or another one, as far as is known here; there is false for none.
func Machine(r *Registry, id string) (machine string, there bool) {
	if r.o.Claims == nil {
		return "", false
	}
	if owner, known := r.o.Claims.Owner(id); known {
		return owner, true
	}
	if _, err := r.o.Supervisor.Agent(id); err == nil || r.o.Sessions.Exists(id) {
		return r.o.Claims.Self(), true
	}
	return "", false
}

// notFound is the error of an agent that is not here, as far as is known.
func notFound(r *Registry, id string) error {
	if r.o.Claims != nil {
		if err := r.o.Claims.Check(); err != nil {
			return NoQuorum(err, "which machine has %s is not known yet", id)
		}
		if owner, known := r.o.Claims.Owner(id); known && owner != r.o.Claims.Self() {
			return hasByNow(&rpc.ClaimedError{Agent: id, Machine: owner})
		}
	}
	return rpc.AgentNotFound(id, supervisor.ErrNotFound)
}

// claimed reports whether any machine is known to have an agent of that name.
func claimed(r *Registry, id string) bool {
	if r.o.Claims == nil {
		return false
	}
	_, known := r.o.Claims.Owner(id)
	return known
}

// claimSession is claim for the name of a session that is to be written.
func claimSession(ctx context.Context, r *Registry, name string) error {
	err := claim(ctx, r, name)
	if _, ok := errors.AsType[*rpc.ClaimedError](err); ok {
		return &sessions.Error{Name: name, Err: fmt.Errorf("%w: %w", sessions.ErrExists, err)}
	}
	return err
}

// release gives up the claim on an agent of which nothing is left. The lock of its id is held.
func release(ctx context.Context, r *Registry, id string) {
	if r.o.Claims == nil {
		return
	}
	if _, err := r.o.Supervisor.Agent(id); err == nil || r.o.Sessions.There(id) {
		return
	}
	if err := r.o.Claims.Release(context.WithoutCancel(ctx), id); err != nil {
		r.log.Warn("an agent that is gone stays claimed for now", zap.String("agent", id), zap.Error(err))
	}
}

// claimAgain is how long after one that failed the claims of what is saved are tried again.
const claimAgain = time.Second

// ClaimSaved claims each session that is saved here, and gives up the claims on what is gone, as an earlier server has left it. It returns
// when that is done, or ctx ends.
func ClaimSaved(ctx context.Context, r *Registry) {
	if r.o.Claims == nil {
		return
	}
	for claimSaved(ctx, r) != nil && ratelimit.Sleep(ctx, claimAgain) == nil {
	}
}

func claimSaved(ctx context.Context, r *Registry) error {
	names, err := sessions.Names(r.o.Sessions)
	if err != nil {
		r.log.Warn("claim what is saved", zap.Error(err))
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		unlock := r.locks.Lock(name)
		var failed error
		if r.o.Sessions.There(name) {
			failed = claim(ctx, r, name)
		}
		unlock()
		if claimed, ok := errors.AsType[*rpc.ClaimedError](failed); ok {
			r.log.Warn("another machine has a session of that name: what is asked of it goes there", zap.String("agent", name), zap.String("machine", claimed.Machine))
		} else if failed != nil {
			r.log.Info("claim what is saved; it is tried again", zap.Error(failed))
			return failed
		}
	}
	for _, id := range r.o.Claims.Owned() {
		if err := keepOrRelease(ctx, r, id); err != nil {
			r.log.Info("fetch what the machines have of an agent; it is tried again", zap.String("agent", id), zap.Error(err))
			return err
		}
	}
	return nil
}

// keepOrRelease sees that what is saved of an agent that this machine has claimed is here, and gives up the claim if there is nothing.
func keepOrRelease(ctx context.Context, r *Registry, id string) error {
	defer r.locks.Lock(id)()
	if _, err := r.o.Supervisor.Agent(id); err == nil {
		return nil
	}
	if err := prepare(ctx, r, id); err != nil {
		return err
	}
	release(ctx, r, id)
	return nil
}

const (
	// orphansEvery is how often is looked for agents that have lost their machine, and takenEvery for those that another one has taken.
	orphansEvery, takenEvery = 200 * time.Millisecond, 500 * time.Millisecond
	// claiming is how many are claimed at a time, which waits for other machines, and moving of how many the files.
	claiming, moving = 32, 8
)

// releaseEvery is how often is looked for claims on what is gone, which could not be given up in time.
const releaseEvery = 10 * time.Second

// ReleaseGone gives up the claims on agents of which nothing is left, until ctx ends.
func ReleaseGone(ctx context.Context, r *Registry) {
	for ratelimit.Sleep(ctx, releaseEvery) == nil {
		for _, id := range r.o.Claims.Owned() {
			if _, err := r.o.Supervisor.Agent(id); err == nil || r.o.Sessions.There(id) || ctx.Err() != nil {
				continue
			}
			if err := keepOrRelease(ctx, r, id); err != nil {
				r.log.Info("fetch what the machines have of an agent; it is tried again", zap.String("agent", id), zap.Error(err))
			}
		}
	}
}

// TakeOver takes over the agents of machines that are gone, until ctx ends. First it claims all: whichever is asked for first is prepared first then.
func TakeOver(ctx context.Context, r *Registry) {
	for ratelimit.Sleep(ctx, orphansEvery) == nil {
		orphans := r.o.Claims.Orphans(ctx)
		each(orphans, claiming, func(id string) { takeOver(ctx, r, id) })
		each(orphans, moving, func(id string) { fetch(ctx, r, id) })
	}
}

// EvictTaken ends the agents that another machine has taken, and the temporary ones that this machine has no claim on any more, until ctx ends.
func EvictTaken(ctx context.Context, r *Registry) {
	for ratelimit.Sleep(ctx, takenEvery) == nil {
		each(r.o.Claims.Taken(ctx), moving, func(id string) { evict(ctx, r, id) })
		each(unclaimed(r), moving, func(id string) { endUnclaimed(ctx, r, id) })
	}
}

// unclaimed are the temporary agents here whose names the others gave up while this machine stood still or was cut off, whether another machine has
// made an agent of the name since or not. A new agent is claimed before it is one of the supervisor's.
func unclaimed(r *Registry) (agents []string) {
	for _, info := range r.o.Supervisor.Agents() {
		if api.IsTemp(info.ID) && isUnclaimed(r, info.ID) {
			agents = append(agents, info.ID)
		}
	}
	return agents
}

// isUnclaimed reports whether this machine has no claim on an agent, as far as that is certain: which claims were given up, a machine that is cut off does not know.
func isUnclaimed(r *Registry, id string) bool {
	if r.o.Claims.Check() != nil {
		return false
	}
	machine, known := r.o.Claims.Owner(id)
	return !known || machine != r.o.Claims.Self()
}

// endUnclaimed ends a temporary agent that is unclaimed, as if it was destroyed: the others were told that it ended with its machine.
func endUnclaimed(ctx context.Context, r *Registry, id string) {
	if !isUnclaimed(r, id) { // it was, before others were ended
		return
	}
	// Before the lock: whoever holds it may wait for the agent.
	if err := r.o.Supervisor.Remove(ctx, id); err != nil {
		return // it was destroyed meanwhile, or ctx has ended
	}
	r.log.Warn("the others took this machine for lost, and the name of a temporary agent for free: the agent ends", zap.String("agent", id))
	defer r.locks.Lock(id)()
	if _, err := r.o.Supervisor.Agent(id); err == nil || r.last.is(id) {
		return
	}
	if err := r.o.Sessions.RemoveTemp(id); err != nil {
		r.log.Warn("agent ended, its file is still there", zap.String("agent", id), zap.Error(err))
	}
}

// each does something with each agent, with so many at a time, and returns when it is done.
func each(ids []string, together int, do func(id string)) {
	var work sync.WaitGroup
	defer work.Wait()
	places := make(chan struct{}, together)
	for _, id := range ids {
		places <- struct{}{}
		work.Go(func() {
			do(id)
			<-places
		})
	}
}

// evict ends what runs here of an agent that another machine has taken.
func evict(ctx context.Context, r *Registry, id string) {
	if !slices.Contains(r.o.Claims.Taken(ctx), id) { // it was, before others were evicted
		return
	}
	// Before the lock: whoever holds it may wait for the agent.
	if err := r.o.Supervisor.Evict(ctx, id); err == nil {
		r.log.Warn("another machine has taken an agent, which ends here", zap.String("agent", id))
	} else if !errors.Is(err, supervisor.ErrNotFound) {
		return // it is tried again, unless ctx has ended
	}
	defer r.locks.Lock(id)()
	if _, err := r.o.Supervisor.Agent(id); err == nil {
		return
	}
	r.replaced(id)
	if err := r.o.Claims.GiveUp(ctx, id); err != nil {
		r.log.Warn("set aside what is saved of an agent that another machine has taken", zap.String("agent", id), zap.Error(err))
	}
}

// takeOver makes the agent of a machine that is gone this machine's.
func takeOver(ctx context.Context, r *Registry, id string) {
	defer r.locks.Lock(id)()
	r.replaced(id)
	if err := r.o.Claims.TakeOver(ctx, id); err != nil {
		r.log.Warn("take over the agent of a machine that is gone; it is tried again", zap.String("agent", id), zap.Error(err))
	}
}

// fetch sees that what is saved of an agent that was taken over is here. It is no error if it is another machine's.
func fetch(ctx context.Context, r *Registry, id string) {
	defer r.locks.Lock(id)()
	if err := prepare(ctx, r, id); err != nil {
		r.log.Warn("fetch what the machines have of an agent; it is tried again", zap.String("agent", id), zap.Error(err))
	}
}
