package clusterchaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// op is what a client asks of an agent.
type op struct {
	agent string
	// send is the request_id of a send; "" is for reading the conversation.
	send string
	// beside are the sends that were under way while the conversation was read: it may have them or not.
	beside []string
	// late says that the machine may have been cut off, or have stood still: it reads what it has. That may end before what others have
	// answered since, and have turns that were cut off there.
	late bool
}

// The outcomes of a send. One that crashed, or failed, may have left its prompt in the conversation.
const (
	completed = "completed"
	crashed   = "crashed"
	failed    = "failed" // its disk was full
	unknown   = ""       // nobody was told
)

// answer is what a client was told.
type answer struct {
	outcome string   // of a send
	turns   []string // that the conversation has, by request_id
}

// An agent's log only grows, and its conversation was read once more when nothing went on any more. So where each send is in the log is known, and
// the log at any time is so many of its first sends.

// placed is an operation that says of how many sends the log had.
type placed struct {
	op
	at       int // of a send: how many are before it in the log
	from, to int // of what was read: how many the log may have had
}

// place is what the operations of one agent say of its log, but for those that say nothing of its order; and what of them cannot be, whatever the order.
func place(history []porcupine.Operation) (all []porcupine.Operation, faults []string) {
	outcomes := map[string]string{} // of sends, as far as anybody was told
	for _, o := range history {
		asked, told := o.Input.(op), o.Output.(answer).outcome
		if asked.send == "" {
			continue
		}
		if before := outcomes[asked.send]; before != unknown && told != unknown && before != told {
			faults = append(faults, fmt.Sprintf("%s was answered as %s and as %s", asked.send, before, told))
		}
		outcomes[asked.send] = cmp.Or(told, outcomes[asked.send])
	}
	sends := spans(history)
	whole := last(history, outcomes)
	if whole == nil {
		return nil, append(faults, "its conversation was not read while nothing went on")
	}
	places := map[string]int{}
	for i, id := range whole {
		if _, twice := places[id]; twice {
			faults = append(faults, id+" is in its conversation twice")
		}
		places[id] = i
	}
	for _, o := range history {
		p := placed{op: o.Input.(op)}
		if p.send == "" {
			p.from, p.to = p.lengths(whole, o.Output.(answer).turns, outcomes)
			p.begunAgain(whole, o.Output.(answer).turns, outcomes, sends)
		} else if at, there := places[p.send]; there {
			p.at = at
		} else if outcomes[p.send] == completed {
			faults = append(faults, p.send+" was answered as completed, and its conversation has it not")
			continue
		} else {
			continue // a send that left nothing
		}
		o.Input = p
		all = append(all, o)
	}
	return all, faults
}

// last is what the conversation was in the end; nil if that is not known.
func last(history []porcupine.Operation, sent map[string]string) (turns []string) {
	var at int64 = -1
	for _, o := range history {
		asked := o.Input.(op)
		own := func(id string) bool { _, ok := sent[id]; return ok }
		if asked.send == "" && !asked.late && o.Call > at && !slices.ContainsFunc(asked.beside, own) {
			at, turns = o.Call, append([]string{}, o.Output.(answer).turns...)
		}
	}
	return turns
}

// lengths are how many of the first sends of the whole log a conversation may have had that was read as these; from is more than to if none.
func (o op) lengths(whole, turns []string, outcomes map[string]string) (from, to int) {
	skipped := func(id string) bool {
		outcome, sent := outcomes[id]
		return slices.Contains(o.beside, id) || o.late && sent && outcome != completed
	}
	read := slices.DeleteFunc(slices.Clone(turns), skipped)
	var there []string // of the first sends, those that are not skipped
	from, to = len(whole)+1, -1
	for n, same := 0, false; n <= len(whole); n++ {
		if n > 0 && !skipped(whole[n-1]) {
			there = append(there, whole[n-1])
		}
		if len(there) == len(read) {
			same = slices.Equal(there, read)
		}
		if same && (o.late || len(there) == len(read)) {
			from, to = min(from, n), n
		}
	}
	return from, to
}

// atOnce is how many sends of an agent may be under way: as many as it has talkers.
const atOnce = 2

// begunAgain finds out of what was read late where its last sends were under way on a machine that was cut off then, and were begun again where the agent went on: nobody
// had known that they were accepted (supervisor/SUPERVISION.md, D509). What they stand before in that conversation was not answered yet when they were sent.
func (p *placed) begunAgain(whole, turns []string, outcomes map[string]string, sends map[string]span) {
	for n := 1; p.late && p.from > p.to && n <= min(atOnce, len(turns)); n++ {
		rest := len(turns) - n
		from, to := p.lengths(whole, turns[:rest], outcomes)
		ok := from <= to
		for _, id := range turns[rest:] {
			at := slices.Index(whole, id)
			ok = ok && at >= from && !slices.ContainsFunc(whole[from:at], func(before string) bool { return sends[id].asked >= sends[before].told })
		}
		if ok {
			p.from, p.to = from, to
		}
	}
}

// span is from when a send was asked for first, until it was answered first.
type span struct{ asked, told int64 }

// spans are those of all sends.
func spans(history []porcupine.Operation) map[string]span {
	all := map[string]span{}
	for _, o := range history {
		id := o.Input.(op).send
		if id == "" {
			continue
		}
		s, again := all[id]
		if !again {
			s = span{math.MaxInt64, math.MaxInt64}
		}
		s.asked = min(s.asked, o.Call)
		if o.Output.(answer).outcome != unknown {
			s.told = min(s.told, o.Return)
		}
		all[id] = s
	}
	return all
}

// step is how many sends the log may have once the operation was answered so; none if it cannot have been.
func (p placed) step(n int, a answer) (next []any) {
	switch {
	case p.send == "":
		if p.from <= n && n <= p.to {
			next = append(next, n)
		}
	case p.at < n:
		next = append(next, n)
	case p.at == n:
		next = append(next, n+1)
		fallthrough
	default:
		if a.outcome == unknown { // another try has done it, or will
			next = append(next, n)
		}
	}
	return next
}

// byAgent are the operations of each agent.
func byAgent(history []porcupine.Operation) map[string][]porcupine.Operation {
	by := map[string][]porcupine.Operation{}
	for _, o := range history {
		agent := o.Input.(op).agent
		by[agent] = append(by[agent], o)
	}
	return by
}

// model is that of one agent's log: how many sends it has.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{0} },
		Step: func(state, input, output any) []any { return input.(placed).step(state.(int), output.(answer)) },
		DescribeOperation: func(input, output any) string {
			o, a := input.(placed), output.(answer)
			if o.send == "" {
				return "read: " + strings.Join(a.turns, " ")
			}
			return fmt.Sprintf("send %s: %s", o.send, a.outcome)
		},
	}
	return m.ToModel()
}
