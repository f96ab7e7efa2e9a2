package clusterchaos

import (
	"fmt"
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

// entry is a send of an agent's log: how it ended, and whether the conversation has it.
type entry struct {
	id, outcome string
	there       bool
}

// log is what an agent was asked, in the order in which that took effect.
type log []entry

func (l log) with(e entry) log { return append(slices.Clone(l), e) }

// step is each log that an agent may have once it has answered o by a; none if it cannot have answered so.
func (l log) step(o op, a answer) (next []any) {
	if o.send == "" {
		skipped := func(id string) bool {
			return slices.Contains(o.beside, id) || o.late && slices.ContainsFunc(l, func(e entry) bool { return e.id == id && e.outcome != completed })
		}
		var there []string
		for _, e := range l {
			if e.there && !skipped(e.id) {
				there = append(there, e.id)
			}
		}
		read := slices.DeleteFunc(slices.Clone(a.turns), skipped)
		if o.late && len(read) <= len(there) {
			there = there[:len(read)]
		}
		if slices.Equal(there, read) {
			next = append(next, l)
		}
		return next
	}
	if at := slices.IndexFunc(l, func(e entry) bool { return e.id == o.send }); at >= 0 {
		if a.outcome == unknown || a.outcome == l[at].outcome {
			next = append(next, l)
		}
		return next
	}
	if a.outcome == unknown {
		next = append(next, l)
	}
	for _, outcome := range []string{completed, crashed, failed} {
		if a.outcome != unknown && a.outcome != outcome {
			continue
		}
		next = append(next, l.with(entry{o.send, outcome, true}))
		if outcome != completed {
			next = append(next, l.with(entry{o.send, outcome, false}))
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

// model is that of one agent's log.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init:  func() []any { return []any{log(nil)} },
		Step:  func(state, input, output any) []any { return state.(log).step(input.(op), output.(answer)) },
		Equal: func(a, b any) bool { return slices.Equal(a.(log), b.(log)) },
		DescribeOperation: func(input, output any) string {
			o, a := input.(op), output.(answer)
			if o.send == "" {
				return "read: " + strings.Join(a.turns, " ")
			}
			return fmt.Sprintf("send %s: %s", o.send, a.outcome)
		},
	}
	return m.ToModel()
}
