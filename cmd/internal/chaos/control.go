package chaos

import (
	"slices"
	"time"
)

// controlStats are how the control agents were served.
type controlStats struct {
	attempts    []attempt
	refused     []Record                // refused or without an answer, of control agents
	firstAnswer map[*send]time.Duration // of every agent's sends
}

// attempt is one of a control agent's that was answered.
type attempt struct {
	request  string
	from, to time.Duration
	asked    time.Duration // when the first of its tries began
	outcome  string
	first    bool // no answer was known before
}

// recordAnswer notes when a send was answered.
func (c *Checker) recordAnswer(r Record, began time.Duration) {
	s := c.send(r)
	if c.stats.firstAnswer == nil {
		c.stats.firstAnswer = map[*send]time.Duration{}
	}
	first := !s.answered
	if first {
		c.stats.firstAnswer[s] = r.At
	}
	if c.control[r.Agent] {
		c.stats.attempts = append(c.stats.attempts, attempt{r.Request, began, r.At, s.asked, r.Outcome, first})
	}
}

func (c *Checker) recordRefusal(r Record) {
	if c.control[r.Agent] {
		c.stats.refused = append(c.stats.refused, r)
	}
}

func (c *Checker) faultInjected(from, to time.Duration) bool {
	return slices.ContainsFunc(c.unsafe, func(f fault) bool { return f.meets(from, to) })
}

func (c *Checker) diskFull(from, to time.Duration) bool {
	return slices.ContainsFunc(c.unsafe, func(f fault) bool { return f.disk && f.meets(from, to) })
}

// judgeControl says what the control agents were not given.
func (c *Checker) judgeControl(verdict *Checker) {
	for _, t := range c.stats.attempts {
		s := c.sends[t.request]
		if c.faultInjected(t.asked, t.to) { // an earlier try may have met the attack
			continue
		}
		at := Record{At: t.to}
		if t.first && t.outcome != "completed" {
			verdict.violated(ControlServed, at, "%s of %s, which nobody attacked: %s", t.request, s.agent, t.outcome)
		}
		if long := t.to - t.asked; long > c.maxLatency {
			verdict.violated(ControlServed, at, "%s of %s, which nobody attacked, took %.1f s", t.request, s.agent, long.Seconds())
		}
	}
	for _, r := range c.stats.refused {
		if !c.faultInjected(c.sends[r.Request].began[r.Try], r.At) {
			verdict.violated(ControlServed, r, "%s of %s, which nobody attacked, was refused: %s", r.Request, r.Agent, r.Text)
		}
	}
	for _, request := range c.order {
		if s := c.sends[request]; c.control[s.agent] && !s.answered && !c.died {
			verdict.violated(ControlServed, Record{At: c.last}, "%s of %s, which nobody attacked, was never answered", request, s.agent)
		}
	}
}

// Latency is how long the tries of control agents took that met no attack on the
// server or its disk. Zero if there were none.
type Latency struct {
	Tries         int
	P50, P99, Max time.Duration
}

// latency is that of the tries during the attack, or before it.
func (c *Checker) latency(attacked bool) Latency {
	var took []time.Duration
	for _, t := range c.stats.attempts {
		under := c.attack.from >= 0 && c.attack.meets(t.from, t.to)
		if t.first && under == attacked && !c.faultInjected(t.from, t.to) {
			took = append(took, t.to-t.from)
		}
	}
	if len(took) == 0 {
		return Latency{}
	}
	slices.Sort(took)
	return Latency{len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1]}
}
