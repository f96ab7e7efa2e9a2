package top

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
)

// deed is what a person does to an agent.
type deed int

const (
	cancel  deed = iota // the running turn
	restart             // the process
	kill                // the process, until the next message
)

func (d deed) String() string { return [...]string{"cancel", "restart", "kill"}[d] }

// question is whether a person means a deed.
type question struct {
	deed  deed
	agent string
	text  string
}

// deedKey takes a key for something that is done to the chosen agent.
func (m *model) deedKey(name string) tea.Cmd {
	a := m.board.agents[m.chosen]
	if a == nil {
		return nil
	}
	id := cli.Harmless(a.AgentID, true)
	busy := ""
	if a.RequestID != nil {
		busy = ", and the turn that it runs,"
	}
	switch name {
	case "enter", "a":
		m.attach = a.AgentID
		return tea.Quit
	case "c":
		if a.RequestID == nil {
			m.note = id + " runs no turn"
			return nil
		}
		return m.do(cancel, a.AgentID)
	case "r":
		m.question = &question{restart, a.AgentID, "end the process of " + id + busy + " and start it again?"}
	case "k":
		m.question = &question{kill, a.AgentID, "end the process of " + id + busy + " until the next message?"}
	}
	return nil
}

// do does it. The note says what came of it.
func (m *model) do(d deed, id string) tea.Cmd {
	name := cli.Harmless(id, true)
	request := ""
	if a := m.board.agents[id]; a != nil && a.RequestID != nil {
		request = *a.RequestID
	}
	m.note = d.String() + " " + name + " …"
	return func() tea.Msg {
		ctx, stop := context.WithTimeout(m.ctx, 2*patience) // a process that hangs is ended within 5 s
		defer stop()
		said, err := carryOut(ctx, m.c, d, id, request)
		if err != nil {
			said = "not done: " + cli.Harmless(err.Error(), true)
		}
		return done(name + ": " + said)
	}
}

// carryOut does it, and says what came of it.
func carryOut(ctx context.Context, c *client.Client, d deed, id, request string) (string, error) {
	if d == cancel {
		cancelled, err := client.Do(ctx, c, id, api.Cancel, api.CancelParams{RequestID: request})
		if err == nil && !cancelled.Cancelled {
			return "the turn has ended", nil
		}
		return "cancelled", err
	}
	if _, err := client.Do(ctx, c, id, api.Shutdown, api.None{}); err != nil || d == kill {
		return "killed", err
	}
	_, err := client.Do(ctx, c, id, api.GetContext, api.None{}) // it starts the process
	return "restarted", err
}
