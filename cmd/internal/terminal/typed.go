package terminal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

// submit takes a line that was typed. steer has it come before all that waits.
func (t *talk) submit(text string, steer bool) (lines []string, more work) {
	if q := t.question; q != nil {
		return t.answered(q, text)
	}
	text = strings.TrimRight(text, "\n")
	switch {
	case strings.TrimSpace(text) == "":
		return nil, nil
	case !waits(t, text):
		return carryOut(t, text, steer)
	case len(t.behind) >= maxBehind:
		return []string{t.look().problem("too many lines wait for a command: not taken: " + cli.Harmless(text, true))}, nil
	case t.o.Plain: // it is said, as it is not drawn
		lines = []string{t.look().note(cli.Harmless("queued: "+text, true))}
	}
	t.behind = append(t.behind, typedLine{text, steer})
	return lines, nil
}

// carryOut carries out a line that waits for nothing.
func carryOut(t *talk, text string, steer bool) (lines []string, more work) {
	switch name := commandOf(text); {
	case name != "" && waitedFor(name):
		lines, more = t.command(text)
		return lines, during(t, more)
	case name != "":
		return t.command(text)
	case t.agent == "":
		return []string{t.look().problem("no agent is talked to: /agent NAME goes to one, /help names the commands")}, nil
	}
	text = strings.TrimPrefix(text, "/")
	attached, missing, err := attachments(t.o.Cwd, text)
	if err != nil {
		return []string{t.look().problem(cli.Harmless(err.Error(), true))}, nil
	}
	for _, path := range missing {
		lines = append(lines, t.look().note(cli.Harmless("no file "+path+": sent as text", true)))
	}
	if queues := t.shown.turn != "" || len(queuedFor(t)) > 0; t.o.Plain && queues && !steer {
		lines = append(lines, t.look().note(cli.Harmless("queued: "+text, true)))
	}
	t.send(text, steer, attached)
	return lines, nil
}

func (t *talk) send(text string, steer bool, attached *[]protocol.Attachment) {
	m := message{agent: t.agent, id: uuid.NewString(), text: text, whenBusy: "queue", attached: attached}
	t.own[m.id] = text
	if steer {
		m.whenBusy = "steer"
		t.queued = append([]message{m}, t.queued...)
	} else {
		t.queued = append(t.queued, m)
	}
	t.forget("")
}

// queuedFor are the messages that wait for the agent that is talked to.
func queuedFor(t *talk) (own []message) {
	for _, m := range t.queued {
		if m.agent == t.agent {
			own = append(own, m)
		}
	}
	return own
}

// strand drops the messages that wait for the agent that is talked to, which is gone, and says so: they would bring it back.
func strand(t *talk) []string {
	return withdraw(t, func(m message) bool { return m.agent == t.agent && m.known == nil })
}

// strandHalted drops the messages that waited for agents that were stopped, and says so: they would start them again. It does so once what
// became of the first one, which is at the server, is known, so that they are named in their order.
func strandHalted(t *talk) []string {
	first := map[string]bool{} // the agents with one there
	for _, m := range t.queued {
		if m.known != nil {
			first[m.agent] = true
		}
	}
	return withdraw(t, func(m message) bool { return m.halted && !first[m.agent] })
}

// halt keeps the messages that wait for an agent, which is stopped, from being sent, or no more.
func halt(t *talk, agent string, on bool) {
	for i := range t.queued {
		if m := &t.queued[i]; m.agent == agent {
			m.halted = on
		}
	}
}

// withdraw drops waiting messages, and says so.
func withdraw(t *talk, those func(message) bool) (lines []string) {
	t.queued = slices.DeleteFunc(t.queued, func(m message) bool {
		waits := those(m)
		if waits {
			delete(t.own, m.id)
			lines = append(lines, t.look().problem(cli.Harmless(notSent+below(m.text), false)))
		}
		return waits
	})
	return lines
}

// unbegun says what came of a message that has had no turn.
func (q *message) unbegun(t *talk, m unbegun) []string {
	if !m.taken {
		delete(t.own, q.id)
	}
	switch {
	case m.err != nil:
		if _, answered := errors.AsType[*client.RPCError](m.err); answered && m.taken {
			t.ended[q.id] = true
		}
		return []string{t.look().problem(cli.Harmless(fate(q.text, m.taken, m.err), false))}
	case m.cancelled && (m.halted || q.halted):
		delete(t.own, q.id)
		return []string{t.look().problem(cli.Harmless(notSent+below(q.text), false))}
	case m.cancelled:
		return []string{t.look().note(cli.Harmless("cancelled: "+q.text, true))}
	}
	return nil
}

const (
	notSent    = "not sent: "
	perhapsNot = "perhaps not sent: "
)

// below is a message of several lines behind what is said of it.
func below(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// fate says of a message that came to nothing whether the server has had it, and why that is all.
func fate(text string, taken bool, err error) string {
	what := perhapsNot
	if _, answered := errors.AsType[*client.RPCError](err); taken {
		what = ""
	} else if answered && client.KindOf(err) != api.KindNodeUnreachable { // another machine may have it
		what = notSent
	}
	return what + below(text) + ": " + err.Error()
}

// takenPatience bounds the wait for the server to take, at the end of a talk, what was just sent to it.
const takenPatience = 5 * time.Second

// undelivered says which messages the server does not have, or has but will not answer, as far as that is known.
func undelivered(t *talk) (lines []string) {
	ctx, cancel := context.WithTimeoutCause(t.ctx, takenPatience, errors.New("the server does not answer"))
	defer cancel()
	for _, m := range t.queued {
		switch {
		case m.known == nil:
			lines = append(lines, notSent+below(m.text))
		case t.gone: // also of one that it has taken nobody knows more
			lines = append(lines, perhapsNot+below(m.text))
		default:
			if taken, err := m.outcome(ctx); err != nil {
				lines = append(lines, fate(m.text, taken, err))
			} else if m.halted { // it is cancelled, unless it has come behind the stop
				lines = append(lines, perhapsNot+below(m.text))
			}
		}
	}
	return lines
}

// outcome is what is known by the end of ctx of a message that was sent: of one that waits at the server, that it was taken.
func (m *message) outcome(ctx context.Context) (taken bool, err error) {
	select {
	case err = <-m.known:
	default:
		select {
		case err = <-m.known:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if taken = err == nil; taken {
		select {
		case err = <-m.known:
		default:
		}
	}
	return taken, err
}

// lost says that a message has come to nothing before its turn began, as of a server that was killed. Of ours that is said with the answer to
// what was sent, and by name.
func lost(t *talk, e protocol.TurnEnd) []string {
	if slices.ContainsFunc(t.queued, func(m message) bool { return m.id == e.TurnID }) {
		return nil
	}
	text, own := t.own[e.TurnID]
	delete(t.own, e.TurnID)
	if t.ended[e.TurnID] {
		delete(t.ended, e.TurnID)
		return nil
	}
	if !own {
		text = "a message of somebody else"
	}
	return []string{t.look().problem(cli.Harmless(e.Outcome+": "+text+": "+e.Error, true))}
}

// answered takes the answer to a question.
func (t *talk) answered(q *question, text string) ([]string, work) {
	if q.keys != "" && !q.chooses(text) {
		return typedEarly(t, q, text)
	}
	text = strings.TrimSpace(text)
	if text == "/quit" {
		return t.handle(ended(nil))
	}
	if q.answer != nil {
		t.question = nil
		if q.about != "" {
			return nil, q.answer(text)
		}
		return nil, during(t, q.answer(text))
	}
	switch strings.ToLower(text) {
	case "y", "yes":
		t.question = nil
		return nil, during(t, q.yes)
	case "n", "no", "":
		return nil, t.drop()
	}
	if q.passes {
		t.question = nil
		return t.submit(text, false)
	}
	lines := []string{t.look().problem("the answer is y or n")}
	if t.o.Plain { // else the question stands there still
		lines = append(lines, q.text)
	}
	return lines, nil
}

// drop drops the question, for the lobby if nobody is talked to.
func (t *talk) drop() work {
	t.question = nil
	if t.agent == "" {
		return during(t, t.enterLobby)
	}
	return nil
}

// interrupt cancels the running turn of the agent that is talked to, or else its first message, or else takes back what waits for a
// command; false without any.
func (t *talk) interrupt() (work, bool) {
	agent, id := t.agent, t.shown.turn
	if id != "" {
		t.shown.phase = "cancelling"
	} else if waiting := queuedFor(t); agent != "" && len(waiting) > 0 {
		id = waiting[0].id
	} else if len(t.behind) > 0 {
		lines := takeBack(t)
		return func() any { return lines }, true
	} else {
		return nil, false
	}
	return func() any {
		if err := t.chat.cancel(agent, id); err != nil {
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		}
		return nil
	}, true
}
