package chaos

import (
	"slices"
	"time"
)

// latencies are how the calm agents were served.
type latencies struct {
	tries       []try
	refused     []Record                // refused or without an answer, of calm agents
	firstAnswer map[*send]time.Duration // of every agent's sends
}

// try is one of a calm agent's that was answered.
type try struct {
	request  string
	from, to time.Duration
	asked    time.Duration // when the first of its tries began
	outcome  string
	first    bool // no answer was known before
}

// serve notes when a send was answered.
func (c *Checker) serve(r Record, began time.Duration) {
	s := c.send(r)
	if c.calm.firstAnswer == nil {
		c.calm.firstAnswer = map[*send]time.Duration{}
	}
	first := !s.answered
	if first {
		c.calm.firstAnswer[s] = r.At
	}
	if c.peaceful[r.Agent] {
		c.calm.tries = append(c.calm.tries, try{r.Request, began, r.At, s.asked, r.Outcome, first})
	}
}

// refuse notes that a send was not accepted, or that its connection broke.
func (c *Checker) refuse(r Record) {
	if c.peaceful[r.Agent] {
		c.calm.refused = append(c.calm.refused, r)
	}
}

// excused says that the server or its disk was attacked between two times.
func (c *Checker) excused(from, to time.Duration) bool {
	return slices.ContainsFunc(c.unsafe, func(s span) bool { return s.meets(from, to) })
}

// judgeCalm says what the calm agents were not given.
func (c *Checker) judgeCalm(verdict *Checker) {
	for _, t := range c.calm.tries {
		s := c.sends[t.request]
		if c.excused(t.asked, t.to) { // an earlier try may have met the attack
			continue
		}
		at := Record{At: t.to}
		if t.first && t.outcome != "completed" {
			verdict.violated(CalmInBounds, at, "%s of %s, which nobody attacked: %s", t.request, s.agent, t.outcome)
		}
		if long := t.to - t.asked; long > c.patience {
			verdict.violated(CalmInBounds, at, "%s of %s, which nobody attacked, took %.1f s", t.request, s.agent, long.Seconds())
		}
	}
	for _, r := range c.calm.refused {
		if !c.excused(c.sends[r.Request].began[r.Try], r.At) {
			verdict.violated(CalmInBounds, r, "%s of %s, which nobody attacked, was refused: %s", r.Request, r.Agent, r.Text)
		}
	}
	for _, request := range c.order {
		if s := c.sends[request]; c.peaceful[s.agent] && !s.answered && !c.died {
			verdict.violated(CalmInBounds, Record{At: c.last}, "%s of %s, which nobody attacked, was never answered", request, s.agent)
		}
	}
}

// Latency is how long the tries of calm agents took that met no attack on the
// server or its disk. Zero if there were none.
type Latency struct {
	Tries         int
	P50, P99, Max time.Duration
}

// latency is that of the tries during the attack, or before it.
func (c *Checker) latency(attacked bool) Latency {
	var took []time.Duration
	for _, t := range c.calm.tries {
		under := c.attack.from >= 0 && c.attack.meets(t.from, t.to)
		if t.first && under == attacked && !c.excused(t.from, t.to) {
			took = append(took, t.to-t.from)
		}
	}
	if len(took) == 0 {
		return Latency{}
	}
	slices.Sort(took)
	return Latency{len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1]}
}
