package terminal

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

// decide answers a request.
func (t *talk) decide(r wants, decision protocol.Decision, reason string) work {
	t.settle(r.agent, r.request.RequestID)
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

// ours are requests that the person is to be asked about.
type ours []wants

// is reports whether it is that request.
func (w wants) is(agent, id string) bool { return w.agent == agent && w.request.RequestID == id }

// without are the other ones.
func without(requests []wants, agent, id string) []wants {
	return slices.DeleteFunc(requests, func(w wants) bool { return w.is(agent, id) })
}

// wait takes a request that waits from now on. It may be told twice: as it comes, and as one that is there.
func wait(t *talk, w wants) work {
	known := func(one wants) bool { return one.is(w.agent, w.request.RequestID) }
	if slices.ContainsFunc(t.requests, known) || slices.ContainsFunc(t.waiting, known) {
		return nil
	}
	t.waiting = append(t.waiting, w)
	return claim(t, []wants{w})
}

// claim finds those requests that are of the agents that are talked to, or of agents that these have created.
// The others wait for somebody to go to their agent.
func claim(t *talk, requests []wants) work {
	talked := t.talked()
	if len(talked) == 0 || len(requests) == 0 {
		return nil
	}
	requests = slices.Clone(requests)
	return func() any {
		all, _ := client.Do(t.ctx, t.c, "", api.ListAgents, api.None{}) // a key for the agent alone lists none
		by, found := cli.CreatorsOf(all.Agents), ours(nil)
		for _, w := range requests {
			if slices.ContainsFunc(talked, func(agent string) bool { return by.Below(w.agent, agent) }) {
				found = append(found, w)
			}
		}
		return found
	}
}

// askAbout has the person asked about requests, but for those that have ended meanwhile.
func askAbout(t *talk, found ours) (lines []string) {
	for _, w := range found {
		before := len(t.waiting)
		if t.waiting = without(t.waiting, w.agent, w.request.RequestID); len(t.waiting) < before {
			lines = append(lines, t.asked(w)...)
		}
	}
	return lines
}

// asked takes a request that the person is asked about from now on, and returns what is shown of it.
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

// requestLines are the request that waits longest.
func (t *talk) requestLines() []string {
	r := t.requests[0]
	if !r.told {
		return t.described(r)
	}
	summary := t.look().styled(yellow, "waits for your approval: "+cli.Harmless(r.agent+": "+r.request.Summary, true))
	return summary[:min(2, len(summary))]
}

// answerPause is how long no key may be pressed before a key answers a request, and behind that key: what a person was about
// to type when it came is no answer, and text may begin with such a key.
const answerPause = 500 * time.Millisecond

// paused says that it is over, unless a key was pressed, or another request came, meanwhile.
type paused int

// waitingFor names the request of those that waits longest; "" for none.
func waitingFor(requests []wants) string {
	if len(requests) == 0 {
		return ""
	}
	return requests[0].agent + " " + requests[0].request.RequestID
}

// offer has the request that waits longest answered by a key from the next pause on.
func (m *model) offer(pressed bool) tea.Cmd {
	id := waitingFor(m.t.requests)
	if id == m.expected && (m.offered || !pressed) {
		return nil
	}
	m.expected, m.offered = id, false
	m.pauses++
	if id == "" {
		return nil
	}
	this := paused(m.pauses)
	return tea.Tick(answerPause, func(time.Time) tea.Msg { return this })
}

// answers reports whether a line is a key that answers what the person is asked, alone.
func (m *model) answers(line string) bool {
	if q := m.t.question; q != nil {
		return q.chooses(line)
	}
	line = strings.TrimSpace(line)
	return len(line) == 1 && m.decides(line)
}

// decides reports whether a line answers the request that waits longest, by Enter. One that was begun before a request could be answered
// is no answer to that.
func (m *model) decides(line string) bool {
	if m.lineFor == "" || m.lineFor != waitingFor(m.t.requests) {
		return false
	}
	a, ok := cli.AnswerOf(line, m.t.requests[0].request)
	return ok && a.Offered
}

// chosen says that a pause is over, unless something was typed meanwhile.
type chosen int

// choosing has a key that answers alone do so after a pause: text may begin with it.
func (m *model) choosing() tea.Cmd {
	if !m.answers(m.input.Value()) {
		return nil
	}
	this := chosen(m.typed)
	return tea.Tick(answerPause, func(time.Time) tea.Msg { return this })
}

// offering is what is drawn of the request that waits longest.
func (m *model) offering() []string {
	if len(m.t.requests) == 0 {
		return nil
	}
	lines := m.t.requestLines()
	switch {
	case !m.offered:
		return append(lines, m.t.look().style(dim, "a key answers, once none is pressed for a moment"))
	case m.input.Length() > 0 && !m.decides(m.input.Value()):
		lines = append(lines, m.t.look().style(dim, "with nothing typed (Ctrl-C):"))
	}
	return append(lines, m.t.choices()...)
}

// offered are the answers to the request that waits longest.
func (t *talk) offered() string {
	choices := "y once"
	if t.mayAllowSession() {
		choices += ", s for this session"
	}
	if t.o.Plain {
		return choices + ", n no, n REASON tells the model why"
	}
	return choices + ", n no, r no with a reason"
}

// choices says how the request that waits longest is answered.
func (t *talk) choices() []string {
	choices := t.offered()
	if more := len(t.requests) - 1; more > 0 {
		choices += fmt.Sprintf(" (%d more wait)", more)
	}
	return t.look().styled(bold, choices)
}

// approve takes a line as the answer to the request that waits longest; false for one that is none. It says of an answer that the request
// does not offer that it is none here.
func approve(t *talk, line string) (lines []string, more work, ok bool) {
	r := t.requests[0]
	a, ok := cli.AnswerOf(line, r.request)
	switch {
	case !ok:
	case !a.Offered:
		lines = []string{t.look().problem(strings.TrimSpace(line) + " is no answer here: " + t.offered())}
	case a.Asks:
		t.question = &question{text: "the reason, for the model:", about: waitingFor(t.requests), answer: func(reason string) work { return t.decide(r, protocol.Deny, reason) }}
	default:
		more = t.decide(r, a.Decision, a.Reason)
	}
	return lines, more, ok
}

// settle drops a request that waits no more, and the question for a reason that is about it.
func (t *talk) settle(agent, id string) (lines []string) {
	if q := t.question; q != nil && q.about == agent+" "+id {
		t.question = nil
		lines = []string{t.look().note("answered elsewhere, or over")}
	}
	t.requests, t.waiting = without(t.requests, agent, id), without(t.waiting, agent, id)
	return lines
}
