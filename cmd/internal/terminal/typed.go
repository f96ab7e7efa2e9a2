package terminal

import (
	"strings"

	"github.com/google/uuid"

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
	case strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//"):
		return t.command(text)
	case t.agent == "":
		return []string{t.look().problem("no agent is talked to: /agent NAME goes to one, /help names the commands")}, nil
	}
	text = strings.TrimPrefix(text, "/")
	attached, err := attachments(t.o.Cwd, text)
	if err != nil {
		return []string{t.look().problem(cli.Harmless(err.Error(), true))}, nil
	}
	t.send(text, steer, attached)
	return nil, nil
}

// unsent is what was typed for a server that had ended before it got it.
func (m *model) unsent() (texts []string) {
	if !m.t.gone {
		return nil
	}
	for _, q := range m.t.queued {
		if !q.sent {
			texts = append(texts, q.text)
		}
	}
	m.release()
	if text := m.input.Value(); strings.TrimSpace(text) != "" {
		texts = append(texts, text)
	}
	return texts
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

// answered takes the answer to a question.
func (t *talk) answered(q *question, text string) ([]string, work) {
	text = strings.TrimSpace(text)
	if q.answer != nil {
		t.question = nil
		return nil, q.answer(text)
	}
	switch strings.ToLower(text) {
	case "y", "yes":
		t.question = nil
		return nil, q.yes
	case "n", "no", "":
		t.question = nil
		return nil, nil
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

// interrupt cancels the running turn; false without one.
func (t *talk) interrupt() (work, bool) {
	id := t.shown.turn
	if id == "" && len(t.queued) > 0 {
		id = t.queued[0].id
	}
	if id == "" {
		return nil, false
	}
	t.shown.phase = "cancelling"
	agent := t.agent
	return func() any {
		if err := t.chat.cancel(agent, id); err != nil {
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		}
		return nil
	}, true
}
