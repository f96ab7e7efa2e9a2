package supervisor

import (
	"fmt"
	"time"

	"nexus.internal/protocol"
)

// heartbeat is what is known of an incarnation's answers. Only an answer to a
// command is a sign of life: it shows that stdin is read and stdout written. A
// flood of other frames shows half of that. The owner guards it.
type heartbeat struct {
	every, timeout time.Duration // Spec.PingEvery and PingTimeout

	timer    *time.Timer // nil before ready and after stop
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

// verdict is what a probe comes to.
type verdict int

const (
	alive  verdict = iota // or not known to be dead
	silent                // it is to be pinged
	dead                  // it has not answered its ping
)

// start begins to look after a ready incarnation. probe is called whenever a probe is due.
func (h *heartbeat) start(spec *Spec, probe func()) {
	h.every, h.timeout = spec.PingEvery, spec.PingTimeout
	h.answered = time.Now()
	h.due = h.answered.Add(h.every)
	h.timer = time.AfterFunc(h.every, probe)
}

func (h *heartbeat) answer() { h.answered = time.Now() }

// overtaken gives up the ping that waits if something else was answered in its
// place; nil if there is none.
func (h *heartbeat) overtaken() *call {
	if h.ping == nil || h.answered.Before(h.asked) {
		return nil
	}
	old := h.ping
	h.ping = nil
	return old
}

// probe judges an incarnation by its answers and sets the next probe. It is silent if
// it has answered nothing for PingEvery, or for idleFactor times that if it is idle,
// and dead if it has not answered its ping for PingTimeout, unless it is we who are late.
func (h *heartbeat) probe(idle, late bool) verdict {
	now := time.Now()
	patience := h.every
	if idle {
		patience *= idleFactor
	}
	v := alive
	switch {
	case h.ping == nil && now.Sub(h.answered) >= patience:
		v = silent
		h.asked, h.due = now, now.Add(h.timeout)
	case h.ping == nil:
		h.due = h.answered.Add(h.every)
		if !h.due.After(now) { // idle
			h.due = now.Add(h.every)
		}
	case late || now.Sub(h.due) > lateness:
		h.due = now.Add(h.timeout)
	default:
		return dead
	}
	h.timer.Reset(h.due.Sub(now))
	return v
}

func (h *heartbeat) stop() {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// watch begins to look after a ready incarnation.
func (s *agentState) watch(inc *incarnation) {
	inc.heartbeat.start(&s.agent.spec, func() {
		s.agent.update(func(s *agentState) []effect {
			if inc.heartbeat.timer != nil { // not stopped
				s.probe(inc)
			}
			return s.elsewhere()
		})
	})
}

// probe pings an incarnation that is silent and gives up a dead one.
func (s *agentState) probe(inc *incarnation) {
	h := &inc.heartbeat
	if ping := h.overtaken(); ping != nil {
		s.calls.forget(ping)
	}
	// Who notifies waits for the disk, and may be the reader, which has not read on yet.
	switch h.probe(s.turns.current == nil && s.calls.idle(), s.turns.late()) {
	case alive:
	case silent:
		h.ping = &call{command: protocol.Ping{ID: s.agent.sup.nextID()}, deliver: func(answer) {}}
		s.calls.expect(h.ping)
		inc.enqueue(h.ping.command)
	case dead:
		s.markLost(inc, ReasonPing, fmt.Sprintf("ping not answered in %s", h.timeout))
	}
}
