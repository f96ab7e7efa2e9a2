package chaos

import "time"

const (
	// maxRemembered is how many events of an agent are remembered, to compare what is
	// seen again; older ones are not judged a second time.
	maxRemembered = 1 << 16
	// minKept is how many bytes of later events there may be when an event is
	// on disk for certain: of 16 MiB (SPEC §5.6) one file may just have gone, and
	// lines are longer than their events.
	minKept = 6 << 20
	// lossWindow is how long before the death of the server an event may have been
	// seen that is not on disk: 10 ms as SPEC §5.6 has it, and what a machine
	// under attack adds (1.2 s where 35 processes wanted two processors); and how
	// late one may be seen that met a full disk.
	lossWindow = 3 * time.Second
)

// agentEvents are the events of one agent that were seen.
type agentEvents struct {
	events map[uint64]event // by number
	order  []uint64         // theirs, as they were seen first
	high   uint64           // the highest that was told, also by a gap
	bytes  int64            // of all events
	gaps   int              // in what was told first, without a full disk
	gapAt  time.Duration    // when the last gap in what was told first was seen; -1 for none
	last   time.Duration    // when anything was seen last
	subbed span             // when anything was seen last before the newest subscription, and when that began
	open   string           // the request whose turn has begun and not ended; "" for none
}

// event is one that was seen.
type event struct {
	sum   uint64
	at    time.Duration
	bytes int64 // of all events up to it
}

func (c *Checker) numbers(agent string) *agentEvents {
	n := c.seen[agent]
	if n == nil {
		n = &agentEvents{events: map[uint64]event{}, gapAt: -1}
		c.seen[agent] = n
	}
	return n
}

func (c *Checker) event(r Record) {
	from := subscription{r.Agent, r.Sub}
	last := c.subs[from]
	first := r.Seq
	if r.Type == "gap" {
		first = r.From
	}
	switch {
	case first > last+1:
		c.violated(Numbered, r, "%s: after event %d comes %d, without a gap", r.Agent, last, first)
	case first <= last:
		c.violated(Numbered, r, "%s: after event %d comes %d again", r.Agent, last, first)
	case r.Seq < first:
		c.violated(Numbered, r, "%s: a gap from %d to %d", r.Agent, first, r.Seq)
	}
	c.subs[from] = r.Seq
	n := c.numbers(r.Agent)
	defer func() { n.last = r.At }()
	if r.Type == "gap" {
		c.gap(r, n)
		return
	}
	if known, ok := n.events[r.Seq]; ok {
		if known.sum != r.Sum {
			c.violated(Numbered, r, "%s: event %d is another than before", r.Agent, r.Seq)
		}
		return
	}
	if len(n.order) >= maxRemembered && r.Seq < n.order[0] { // it was judged when it was seen first
		return
	}
	n.bytes += int64(r.Size)
	n.events[r.Seq] = event{r.Sum, r.At, n.bytes}
	if n.order = append(n.order, r.Seq); len(n.order) > maxRemembered {
		delete(n.events, n.order[0])
		n.order = n.order[1:]
	}
	n.high = max(n.high, r.Seq)
	c.turn(r, n)
}

// subscribed takes where a subscription begins.
func (c *Checker) subscribed(r Record) {
	c.subs[subscription{r.Agent, r.Sub}] = r.Seq
	n := c.numbers(r.Agent)
	n.subbed = span{n.last, r.At}
}

// since is before when nothing can have been lost of what comes next: a subscription
// tells first what happened while there was none.
func (n *agentEvents) since() time.Duration {
	if n.last > n.subbed.to+lossWindow {
		return n.last - lossWindow
	}
	return n.subbed.from - lossWindow
}

// gap judges a gap: it may not stand for what is kept, and there is a reason for
// each: a death of the server loses the events before it once; a full disk takes what
// is short and not what is long, so it makes any number of gaps.
func (c *Checker) gap(r Record, n *agentEvents) {
	for _, seq := range n.order {
		e, ok := n.events[seq]
		if ok && r.From <= seq && seq <= r.Seq && n.bytes-e.bytes <= minKept && !c.faultInjected(e.at-lossWindow, e.at+lossWindow) {
			c.violated(Numbered, r, "%s: a gap from %d to %d hides event %d, which is kept", r.Agent, r.From, r.Seq, seq)
			break
		}
	}
	if r.Seq <= n.high {
		return
	}
	n.high, n.gapAt, n.open = r.Seq, r.At, ""
	if c.diskFull(n.since(), r.At) {
		return
	}
	if n.gaps++; n.gaps > c.downs {
		c.violated(Numbered, r, "%s: a gap from %d to %d, and nothing that could have lost them", r.Agent, r.From, r.Seq)
	}
}

// turn takes the events that tell of a turn.
func (c *Checker) turn(r Record, n *agentEvents) {
	if r.Request == "" {
		return
	}
	s := c.send(r)
	switch r.Type {
	case "turn_start":
		if s.started != 0 {
			c.violated(OneOutcome, r, "%s of %s ran twice: events %d and %d", r.Request, r.Agent, s.started, r.Seq)
		}
		if n.open != "" && n.open != r.Request {
			c.violated(OneOutcome, r, "%s of %s began at event %d, and at %d the next turn, without its turn_end",
				n.open, r.Agent, c.sends[n.open].started, r.Seq)
		}
		s.accepted, s.started, n.open = true, r.Seq, r.Request
	case "turn_end":
		// An event that was lost with the server is sent anew by the next one.
		anew := r.Outcome == s.endedAs && c.downs > s.downs
		if s.ended != 0 && !anew {
			c.violated(OneOutcome, r, "%s of %s ended twice: events %d and %d", r.Request, r.Agent, s.ended, r.Seq)
		}
		s.ended, s.endedAs, s.downs = r.Seq, r.Outcome, c.downs
		s.told = text{r.Said, r.Whole}
		if n.open == r.Request {
			n.open = ""
		}
	}
}

// missesTurnEnd reports whether the turn_end of a send is still to come: its turn has
// told its outcome, and nothing has been lost since it was sent.
func (c *Checker) missesTurnEnd(s *send) bool {
	return s.answered && !s.replayed && s.ended == 0 && !c.died && c.numbers(s.agent).gapAt < s.began[1]
}

func (c *Checker) missesTurnEnds(agent string) bool {
	for _, s := range c.sends {
		if s.agent == agent && c.missesTurnEnd(s) {
			return true
		}
	}
	return false
}
