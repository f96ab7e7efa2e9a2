package chaos

import (
	"slices"
	"time"
)

// latencies are how the calm agents were served.
type latencies struct {
	tries       []try
	firstAnswer map[*send]time.Duration // of every agent's sends
}

// try is one of a calm agent's that was answered.
type try struct {
	request  string
	from, to time.Duration
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
	if c.isCalm(r.Agent) {
		c.calm.tries = append(c.calm.tries, try{r.Request, began, r.At, r.Outcome, first})
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
		began := t.from
		for _, at := range s.began {
			began = min(began, at) // an earlier try may have met the attack
		}
		if c.excused(began, t.to) {
			continue
		}
		at := Record{At: t.to}
		if t.outcome != "completed" {
			verdict.violated(CalmInBounds, at, "%s of %s, which nobody attacked: %s", t.request, s.agent, t.outcome)
		}
		if long := t.to - t.from; long > c.patience {
			verdict.violated(CalmInBounds, at, "%s of %s, which nobody attacked, took %.1f s", t.request, s.agent, long.Seconds())
		}
	}
	for _, request := range c.order {
		if s := c.sends[request]; c.isCalm(s.agent) && !s.answered {
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
