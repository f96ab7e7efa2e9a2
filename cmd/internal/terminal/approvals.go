package terminal

import (
	"fmt"
	"strings"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

// decide answers the request that waits longest.
func (t *talk) decide(decision protocol.Decision, reason string) work {
	if len(t.requests) == 0 {
		return nil
	}
	r := t.requests[0]
	t.requests = t.requests[1:]
	what := map[protocol.Decision]string{protocol.AllowOnce: "allowed", protocol.AllowSession: "allowed for this session", protocol.Deny: "denied"}[decision]
	return func() any {
		if err := t.chat.answer(r.agent, r.request.RequestID, decision, reason); err != nil {
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		}
		return said{t.look().note(what + ": " + cli.Harmless(r.request.Summary, true))}
	}
}

// mayAllowSession reports whether the waiting request can be allowed for the session.
func (t *talk) mayAllowSession() bool {
	for _, d := range t.requests[0].request.Decisions {
		if d == protocol.AllowSession {
			return true
		}
	}
	return false
}

// shownRequest is how many lines of a request are drawn below the answer. A longer one is shown as
// what is finished is, so that all of it can be read.
const shownRequest = 12

// asked takes a request that waits from now on, and returns what is shown of it.
func (t *talk) asked(r wants) (lines []string) {
	whole := t.described(r)
	if r.told = t.o.Plain || len(whole) > shownRequest; r.told {
		lines = whole
	}
	t.requests = append(t.requests, r)
	if t.o.Plain {
		lines = append(lines, t.choices()...)
	}
	return lines
}

// described is a request in full, with the change that it would make.
func (t *talk) described(r wants) []string {
	lines := t.look().wrap(strings.TrimRight(cli.DescribeRequest(r.agent, r.request), "\n"), "  ")
	var input []byte = r.request.Input
	lines = append(lines, t.look().change(&call{name: r.request.ToolName, raw: input}, len(input))...)
	return append([]string{t.look().style(yellow, "waits for your approval:")}, lines...)
}

// requestLines are the request that waits longest, and how to answer it.
func (t *talk) requestLines() []string {
	if len(t.requests) == 0 {
		return nil
	}
	r := t.requests[0]
	if !r.told {
		return append(t.described(r), t.choices()...)
	}
	summary := t.look().styled(yellow, "waits for your approval: "+cli.Harmless(r.agent+": "+r.request.Summary, true))
	return append(summary[:min(2, len(summary))], t.choices()...)
}

// choices says how the request that waits longest is answered.
func (t *talk) choices() []string {
	choices := "y once"
	if t.mayAllowSession() {
		choices += ", s for this session"
	}
	choices += ", n no, r no with a reason"
	if more := len(t.requests) - 1; more > 0 {
		choices += fmt.Sprintf(" (%d more wait)", more)
	}
	return t.look().styled(bold, choices)
}

// approve takes the answer y, s, n or r to a request; false for any other.
func (t *talk) approve(key string) (work, bool) {
	switch {
	case key == "y":
		return t.decide(protocol.AllowOnce, ""), true
	case key == "s" && t.mayAllowSession():
		return t.decide(protocol.AllowSession, ""), true
	case key == "n":
		return t.decide(protocol.Deny, ""), true
	case key == "r":
		t.question = &question{text: "the reason, for the model:", answer: func(reason string) work { return t.decide(protocol.Deny, reason) }}
		return nil, true
	}
	return nil, false
}
