package agents

import (
	"context"
	"maps"
	"sync"
	"time"
)

// gates say, for each agent, which calls are under way, and keep others waiting while the agent goes to another machine. An agent that no call
// names costs nothing. The zero value is ready.
type gates struct {
	mu sync.Mutex // guards what follows
	of map[string]*gate
	// given is when agents were handed over, for givenFor.
	given map[string]time.Time
}

// gate is that of one agent.
type gate struct {
	calls int // that are under way
	// holds has sends wait that would wait for their turn here, and shut has all calls wait.
	holds, shut bool
	waiting     int           // calls that wait
	changed     chan struct{} // closed, and another one, when one of these changes
}

const (
	// holdPatience is how long a send waits for the turns before it to end. Then it waits behind them, as on a machine that does not drain, and is waited for.
	holdPatience = time.Minute
	// maxHeld bounds the calls that wait so, for each agent. Sends beyond are not held.
	maxHeld = 256
	// shutPatience is how long all calls of an agent wait for those that are under way.
	shutPatience = time.Second
	// givenFor is how long is known that an agent was handed over: until those that follow its events have found out.
	givenFor = time.Minute
)

// get is the gate of an agent. mu is held.
func (g *gates) get(id string) *gate {
	if g.of == nil {
		g.of = map[string]*gate{}
	}
	one := g.of[id]
	if one == nil {
		one = &gate{changed: make(chan struct{})}
		g.of[id] = one
	}
	return one
}

// tell wakes those that wait for a gate, and forgets one that is open and not in use. mu is held.
func (g *gates) tell(id string, one *gate) {
	close(one.changed)
	one.changed = make(chan struct{})
	if one.calls == 0 && one.waiting == 0 && !one.holds && !one.shut {
		delete(g.of, id)
	}
}

// enter begins a call of an agent, once its gate is not shut, and, for a send that would wait for its turn, once none is held. The error is that of ctx; else leave must
// follow.
func (g *gates) enter(ctx context.Context, id string, queues bool) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.get(id)
	if one.shut || queues && one.holds && one.waiting < maxHeld {
		if err := g.wait(ctx, id, one, queues); err != nil {
			return nil, err
		}
	}
	one.calls++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		one.calls--
		g.tell(id, one)
	}, nil
}

// wait waits until a call may go on. mu is held, but while it waits.
func (g *gates) wait(ctx context.Context, id string, one *gate, queues bool) (err error) {
	patience := time.NewTimer(holdPatience)
	defer patience.Stop()
	one.waiting++
	for one.shut || queues && one.holds {
		changed := one.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-patience.C:
			queues = false
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		g.mu.Lock()
		if err != nil {
			break
		}
	}
	if one.waiting--; err != nil {
		g.tell(id, one)
	}
	return err
}

// hold has sends to an agent wait that would wait for their turn, until open.
func (g *gates) hold(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.get(id).holds = true
}

// shutIdle has all calls of an agent wait until open, once none is under way. It reports false, and changes nothing, if that takes too long.
func (g *gates) shutIdle(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, shutPatience)
	defer cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.get(id)
	for one.shut = true; one.calls > 0; {
		changed := one.changed
		g.mu.Unlock()
		select {
		case <-changed:
			g.mu.Lock()
		case <-ctx.Done():
			g.mu.Lock()
			if one.calls > 0 {
				one.shut = false
				g.tell(id, one)
				return false
			}
		}
	}
	return true
}

// open has what waits go on; holds says that sends that would wait for their turn are held still.
func (g *gates) open(id string, holds bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.of[id]; one != nil {
		one.shut, one.holds = false, holds
		g.tell(id, one)
	}
}

// gave notes that an agent was handed over.
func (g *gates) gave(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.given, func(_ string, at time.Time) bool { return time.Since(at) > givenFor })
	if g.given == nil {
		g.given = map[string]time.Time{}
	}
	g.given[id] = time.Now()
}

// leaves reports whether an agent is being handed over, or was lately.
func (g *gates) leaves(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, given := g.given[id]
	one := g.of[id]
	return one != nil && one.shut || given && time.Since(at) <= givenFor
}

// openAll has all go on that waits.
func (g *gates) openAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, one := range g.of {
		one.holds, one.shut = false, false
		g.tell(id, one)
	}
}
