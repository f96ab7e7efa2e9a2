package supervisor

import (
	"fmt"
	"time"

	"nexus.internal/protocol"
)

// pulse is what is known of an incarnation's answers. The agent's mutex guards
// it. Only an answer to a command is a sign of life: it shows that stdin is read
// and stdout written. A flood of other frames shows half of that.
type pulse struct {
	timer    *time.Timer // nil before ready and after quiet
	answered time.Time   // the last answer, or ready
	asked    time.Time   // when the ping went out that waits for an answer
	ping     *call       // that one, nil if none does
	due      time.Time   // of timer
}

// lateness is how late a timer may be before we judge nobody by it: then it was
// we who stood still, and what was said meanwhile is yet to be read.
const lateness = time.Second

// idleFactor is how many times longer a child is left alone of which nothing is
// asked: a thousand idle agents cost little, and nobody waits for them.
const idleFactor = 4

// watch begins to look after a ready incarnation.
func (a *Agent) watch(inc *incarnation) {
	inc.pulse.answered = time.Now()
	inc.pulse.due = inc.pulse.answered.Add(a.spec.PingEvery)
	inc.pulse.timer = time.AfterFunc(a.spec.PingEvery, func() {
		a.mu.Lock()
		defer a.releaseElsewhere()
		if inc.pulse.timer != nil { // not quiet
			a.feel(inc)
		}
	})
}

// feel pings an incarnation that has answered nothing for PingEvery, or for
// idleFactor times that if it owes nothing, and gives up one that has not answered
// its ping for PingTimeout.
func (a *Agent) feel(inc *incarnation) {
	p, now := &inc.pulse, time.Now()
	// Who tells waits for the disk, and may be the reader, which has not read on yet.
	late := a.telling || now.Sub(a.lastTold) < lateness || now.Sub(p.due) > lateness
	if p.ping != nil && !p.answered.Before(p.asked) {
		a.forget(p.ping) // if something else was answered in its place
		p.ping = nil
	}
	patience := a.spec.PingEvery
	if a.turn == nil && len(a.pending) == 0 {
		patience *= idleFactor
	}
	switch {
	case p.ping == nil && now.Sub(p.answered) >= patience:
		p.ping = &call{command: protocol.Ping{ID: a.sup.nextID()}, deliver: func(answer) {}}
		a.pending[p.ping.command.Ident()] = p.ping
		inc.put(p.ping.command)
		p.asked, p.due = now, now.Add(a.spec.PingTimeout)
	case p.ping == nil:
		p.due = p.answered.Add(a.spec.PingEvery)
		if !p.due.After(now) { // idle
			p.due = now.Add(a.spec.PingEvery)
		}
	case late:
		p.due = now.Add(a.spec.PingTimeout)
	default:
		a.lose(inc, ReasonPing, fmt.Sprintf("ping not answered in %s", a.spec.PingTimeout))
		return
	}
	p.timer.Reset(p.due.Sub(now))
}

// stop ends the watch.
func (p *pulse) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
