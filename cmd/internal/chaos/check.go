package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Promise is one of the things that are checked.
type Promise string

// The promises.
const (
	OneOutcome    Promise = "each accepted send has one outcome"
	Remembered    Promise = "what was answered is in the conversation"
	Numbered      Promise = "events have no hole and no double"
	NothingLeft   Promise = "nothing is left"
	ControlServed Promise = "the others are served"
	Lives         Promise = "the server lives"
)

// Promises are all of them, in the order of a report.
var Promises = []Promise{OneOutcome, Remembered, Numbered, NothingLeft, ControlServed, Lives}

// maxReported is how many violations of a promise are listed; the others are counted.
const maxReported = 20

// Checker judges a history. Its zero value is not usable; see [NewChecker]. It is
// not safe for concurrent use: its [History] shows it one record after another.
type Checker struct {
	control    map[string]bool // agents that nobody attacks
	maxLatency time.Duration

	sends  map[string]*send        // by request
	order  []string                // their requests, as they came
	seen   map[string]*agentEvents // by agent
	subs   map[subscription]uint64 // the number of the last event
	broken map[Promise][]string
	counts map[Promise]int // violations, also those that are not listed
	facts  map[string]int  // see Tally
	looked int
	read   map[string]bool // agents whose conversation was read
	downs  int             // deaths of the server so far
	died   bool            // the server did by itself, so what is not answered cannot be
	stats  controlStats
	unsafe []fault // when the server was down or the disk full; the last may be open
	attack span
	last   time.Duration
}

type subscription struct {
	agent string
	sub   int
}

// span is a time. to is -1 while it is open.
type span struct{ from, to time.Duration }

func (s span) meets(from, to time.Duration) bool { return s.from <= to && (s.to < 0 || s.to >= from) }

// fault is a time in which the server was down or, with disk, its disk full.
type fault struct {
	span
	disk bool
}

// send is what is known of one request.
type send struct {
	agent    string
	began    map[int]time.Duration // by try
	accepted bool
	answered bool
	outcome  string
	sum      uint64
	bare     bool
	replayed bool          // the first answer was
	said     text          // until its end, as it was answered
	told     text          // and as its events tell it
	asked    time.Duration // when it was sent first since it was answered
	waiting  bool          // for an answer, since then
	started  uint64        // number of the event that began its turn; 0 for none seen
	ended    uint64
	endedAs  string
	downs    int  // deaths of the server before it ended
	cancel   bool // a cancel said that it was cancelled
	found    int
	foundSum uint64
}

// text is one that may be known.
type text struct {
	sum   uint64
	whole bool
}

// NewChecker returns a checker. control are the agents that nobody attacks;
// each try of theirs ends within maxLatency, unless the server or its disk was
// attacked meanwhile.
func NewChecker(control map[string]bool, maxLatency time.Duration) *Checker {
	return &Checker{
		control: control, maxLatency: maxLatency, sends: map[string]*send{}, seen: map[string]*agentEvents{}, subs: map[subscription]uint64{},
		broken: map[Promise][]string{}, counts: map[Promise]int{}, facts: map[string]int{}, read: map[string]bool{}, attack: span{-1, -1},
	}
}

// Observe takes the next record.
func (c *Checker) Observe(r Record) {
	c.last = r.At
	c.tally(r)
	switch r.Kind {
	case Sent:
		s := c.send(r)
		s.began[r.Try] = r.At
		if !s.waiting {
			s.waiting, s.asked = true, r.At
		}
	case Answered:
		c.answer(r)
	case CancelSaid:
		s := c.send(r)
		s.cancel = s.cancel || r.Done
	case Subscribed:
		c.subscribed(r)
	case Seen:
		c.event(r)
	case GaveUp:
		c.violated(OneOutcome, r, "%s of %s was given up: it has no outcome", r.Request, r.Agent)
	case Behind:
		c.violated(Numbered, r, "%s: event %d was seen, and not when all were asked for again", r.Agent, r.Seq)
	case Read:
		c.read[r.Agent] = true
	case Unread:
		c.violated(Remembered, r, "the conversation of %s could not be read: %s", r.Agent, r.Text)
	case Found:
		s := c.send(r)
		s.found++
		s.foundSum = r.Sum
	case ServerDown, DiskFull:
		if r.Kind == ServerDown {
			c.downs++
		}
		c.unsafe = append(c.unsafe, fault{span{r.At, -1}, r.Kind == DiskFull})
	case ServerDied:
		c.died = true
		c.unsafe = append(c.unsafe, fault{span{r.At - lossWindow, -1}, false}) // clients may have seen it first
		c.violated(Lives, r, "%s", r.Text)
	case ServerUp, DiskFree:
		if n := len(c.unsafe); n > 0 && c.unsafe[n-1].to < 0 && !c.died {
			c.unsafe[n-1].to = r.At
		}
	case AttackBegan:
		c.attack.from = r.At
	case AttackEnded:
		c.attack.to = r.At
	case Looked:
		c.looked++
	case Left:
		c.violated(NothingLeft, r, "%s", r.Text)
	case Refused, Lost:
		c.recordRefusal(r)
	case Did, Skipped:
	}
}

func (c *Checker) violated(p Promise, r Record, format string, args ...any) {
	c.counts[p]++
	if len(c.broken[p]) < maxReported {
		c.broken[p] = append(c.broken[p], fmt.Sprintf("%.3f s: ", r.At.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (c *Checker) send(r Record) *send {
	s := c.sends[r.Request]
	if s == nil {
		s = &send{agent: r.Agent, began: map[int]time.Duration{}}
		c.sends[r.Request] = s
		c.order = append(c.order, r.Request)
	}
	return s
}

func (c *Checker) answer(r Record) {
	s := c.send(r)
	began := s.began[r.Try]
	c.recordAnswer(r, began)
	s.accepted, s.waiting = true, false
	if !s.answered {
		s.answered, s.outcome, s.sum, s.bare, s.replayed = true, r.Outcome, r.Sum, r.Truncated, r.Replayed
		s.said = text{r.Said, r.Whole}
		return
	}
	if r.Outcome != s.outcome {
		c.violated(OneOutcome, r, "%s of %s was %s, and then %s", r.Request, r.Agent, s.outcome, r.Outcome)
		return
	}
	if r.Outcome == "completed" && !r.Truncated && !s.bare && r.Sum != s.sum {
		c.violated(OneOutcome, r, "%s of %s was answered twice, with different texts", r.Request, r.Agent)
	}
	if !r.Replayed && s.endedBefore(began, c) {
		c.violated(OneOutcome, r, "%s of %s had ended, and its repetition is not replayed", r.Request, r.Agent)
	}
}

// endedBefore says that a first answer had come before a try began: it was
// noted with the tries before it.
func (s *send) endedBefore(began time.Duration, c *Checker) bool {
	at, ok := c.stats.firstAnswer[s]
	return ok && at < began
}

// finish judges what can be judged at the end alone.
func (c *Checker) finish() (broken map[Promise][]string, counts map[Promise]int) {
	end := *c
	end.broken, end.counts = map[Promise][]string{}, map[Promise]int{}
	for p, told := range c.broken {
		end.broken[p], end.counts[p] = slices.Clone(told), c.counts[p]
	}
	at := Record{At: c.last}
	for _, request := range c.order {
		s := c.sends[request]
		completed := s.answered && s.outcome == "completed"
		for _, one := range []struct {
			wrong   bool
			promise Promise
			how     string
		}{
			{s.accepted && !s.answered && s.ended == 0 && !c.died, OneOutcome, "was accepted and has no outcome"},
			{s.answered && s.ended != 0 && s.endedAs != s.outcome, OneOutcome, "was answered as " + s.outcome + ", and its event says " + s.endedAs},
			{
				s.answered && s.said.whole && s.told.whole && s.said.sum != s.told.sum, OneOutcome,
				"(" + s.outcome + ") was answered with another text than its events told",
			},
			{c.missesTurnEnd(s), OneOutcome, "was answered as " + s.outcome + ", and no turn_end told that"},
			{s.cancel && s.answered && s.outcome != "cancelled", OneOutcome, "was cancelled, as the cancel was told, and " + s.outcome},
			{completed && s.found == 0 && c.read[s.agent], Remembered, "was answered, and is not in the conversation"},
			{completed && s.found > 0 && !s.bare && s.foundSum != s.sum, Remembered, "stands otherwise in the conversation than it was answered"},
			{s.found > 1, Remembered, fmt.Sprintf("stands %d times in the conversation", s.found)},
		} {
			if one.wrong {
				end.violated(one.promise, at, "%s of %s %s", request, s.agent, one.how)
			}
		}
	}
	if c.looked == 0 {
		end.violated(NothingLeft, at, "nobody looked")
	}
	c.judgeControl(&end)
	return end.broken, end.counts
}
