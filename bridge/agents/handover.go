package agents

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor"
)

// Placer chooses machines. It is safe for concurrent use.
type Placer interface {
	// Among is the machine of these that is up, takes agents and has the most room; near is taken if it is among them. ok is false if there is none.
	// take says that an agent is about to be placed there.
	Among(machines []string, near string, take bool) (machine string, ok bool)
}

// handOvers are what becomes of the agents of a machine that is to have none.
type handOvers struct {
	gates  gates
	placer Placer // nil for a server alone
	given  atomic.Int64
}

// DrainProgress is how far a machine is that is to have no agents.
type DrainProgress struct {
	// Given are agents that were handed over since the server runs, Left those that are still to be, of which InTurn have a turn, or something else that is waited for.
	Given, Left, InTurn int
	// Bound are those that stay, with the reason.
	Bound map[string]string
}

// Enter begins a call of agents, once none of them is being handed over to another machine; queues says that it is a send that would wait
// for its turn, which is held while the turns before it end. leave ends it. The error is that of ctx.
func Enter(ctx context.Context, r *Registry, ids []string, queues bool) (leave func(), err error) {
	if r.handOvers.placer == nil {
		return func() {}, nil
	}
	var all []func()
	leave = func() {
		for _, one := range all {
			one()
		}
	}
	for _, id := range ids {
		one, err := r.handOvers.gates.enter(ctx, id, queues)
		if err != nil {
			leave()
			return nil, err
		}
		all = append(all, one)
	}
	return leave, nil
}

// Enter implements [rpc.Access].
func (a Access) Enter(ctx context.Context, ids []string, queues bool) (leave func(), err error) {
	return Enter(ctx, a.r, ids, queues)
}

// Leaves reports whether an agent is being handed over to another machine, or was within the last minute.
func (a Access) Leaves(id string) bool { return a.r.handOvers.gates.leaves(id) }

// target is the machine that is to have an agent of this one; "" with the reason why it stays, or with none while that is not known.
func target(r *Registry, id, near string, take bool) (machine, why string) {
	takers, why := r.o.Claims.Takers(id)
	if len(takers) == 0 {
		return "", why
	}
	if up, here := creator(r, id); here {
		if to, why := target(r, up, "", false); to == "" && why != "" {
			return "", fmt.Sprintf("it follows %s, which has created it and stays: %s", up, why)
		}
	}
	machine, ok := r.handOvers.placer.Among(takers, near, take)
	if !ok {
		return "", "of the machines that share its directory, none is up, has room and does not drain"
	}
	return machine, ""
}

// waits reports whether an agent has a turn, or is a part of one: that of an agent which has created it, and asks it for something perhaps.
func waits(r *Registry, id string) bool {
	for range maxDepth + 1 {
		a, err := r.o.Supervisor.Agent(id)
		if err != nil {
			return false
		}
		info := a.Info()
		if info.Running != "" || len(info.Waiting) > 0 || len(info.Asked) > 0 {
			return true
		}
		id = info.Labels.Parent
	}
	return false
}

// parentMachine is the machine of the agent that has created another one; first says that it is on this machine, and to be handed over before.
func parentMachine(r *Registry, id string) (machine string, first bool) {
	up, here := creator(r, id)
	if !here {
		owner, _ := r.o.Claims.Owner(up)
		return owner, false
	}
	to, _ := target(r, up, "", false)
	return "", to != ""
}

// creator is the agent that has created another one, running or saved, "" for none; here says that this machine has it.
func creator(r *Registry, id string) (up string, here bool) {
	if a, err := r.o.Supervisor.Agent(id); err == nil {
		up = a.Info().Labels.Parent
	} else if saved, err := r.o.Sessions.Summary(id); err == nil {
		up = protocol.Value(saved.Settings.ParentAgentID)
	}
	if up == "" {
		return "", false
	}
	owner, _ := r.o.Claims.Owner(up)
	return up, owner == r.o.Claims.Self()
}

// Drain says whether this machine is to have no agents, also after a restart of the server. HandOver sees to it.
func Drain(r *Registry, on bool) error { return r.o.Claims.Drain(on) }

// Progress says how far this machine is with handing over its agents.
func Progress(r *Registry) DrainProgress {
	l := DrainProgress{Given: int(r.handOvers.given.Load()), Bound: map[string]string{}}
	for _, id := range r.o.Claims.Owned() {
		switch to, why := target(r, id, "", false); {
		case to == "" && why != "":
			l.Bound[id] = why
		default:
			if l.Left++; waits(r, id) {
				l.InTurn++
			}
		}
	}
	return l
}

// handOverEvery is how often is looked for agents that can be handed over, handOverAgain after how long again if that of one has failed.
const (
	handOverEvery = 200 * time.Millisecond
	handOverAgain = 5 * time.Second
)

// HandOver hands over the agents of this machine while it drains, until ctx ends.
func HandOver(ctx context.Context, r *Registry) {
	defer r.handOvers.gates.openAll()
	drained := false
	var failed atomic.Bool
	for wait := handOverEvery; ratelimit.Sleep(ctx, wait) == nil; {
		wait = handOverEvery
		if !r.o.Claims.Draining() {
			if drained {
				r.handOvers.gates.openAll()
			}
			drained = false
			continue
		}
		if !drained {
			r.handOvers.given.Store(0)
		}
		drained = true
		each(r.o.Claims.Owned(), moving, func(id string) {
			if ctx.Err() == nil && !handOver(ctx, r, id) {
				failed.Store(true)
			}
		})
		if failed.Swap(false) {
			wait = handOverAgain
		}
	}
}

// handOver hands over one agent, if it has no turn. Else what would wait for a turn there is held. ok is false if that has failed.
func handOver(ctx context.Context, r *Registry, id string) (ok bool) {
	near, later := parentMachine(r, id)
	to, _ := target(r, id, near, false)
	gates := &r.handOvers.gates
	switch {
	case to == "":
		gates.open(id, false) // it may have been held, as another machine was there
	case later:
	case waits(r, id):
		gates.hold(id)
	case !gates.shutIdle(ctx, id):
	default:
		busy, err := giveTo(ctx, r, id, near)
		gates.open(id, busy)
		if err != nil {
			r.log.Warn("hand over an agent; it is tried again", zap.String("agent", id), zap.Error(err))
			return false
		}
	}
	return true
}

// giveTo hands over an agent of which no call is under way. busy says that it has a turn all the same. After an error it is still here, as far as is known.
func giveTo(ctx context.Context, r *Registry, id, near string) (busy bool, err error) {
	defer r.locks.Lock(id)()
	to, _ := target(r, id, near, true)
	if to == "" || !r.o.Claims.Draining() || !ours(r, id) || !r.o.Sessions.There(id) { // nothing of it is saved yet, or any more
		return false, nil
	}
	err = r.o.Supervisor.MoveIdle(context.WithoutCancel(ctx), id)
	switch {
	case errors.Is(err, supervisor.ErrBusy):
		return true, nil
	case err != nil && !errors.Is(err, supervisor.ErrNotFound): // it is saved alone
		return false, err
	}
	r.replaced(id)
	if err := r.o.Claims.HandOver(ctx, id, to); err != nil {
		return false, err
	}
	r.handOvers.gates.gave(id)
	r.handOvers.given.Add(1)
	if err := r.o.Claims.GiveUp(ctx, id); err != nil { // it is tried again by EvictTaken
		r.log.Warn("set aside what is saved of an agent that was handed over", zap.String("agent", id), zap.Error(err))
	}
	return false, nil
}
