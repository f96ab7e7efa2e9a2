package methods

import (
	"context"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor"
)

// maxHostText bounds the content of an answer to a host call, in bytes: written
// as JSON it fits a frame, whatever it is.
const maxHostText = 128 << 10

// sendFor is send for another agent, whose turn waits for the answer.
func (m *turnMethods) sendFor(ctx context.Context, c *rpc.Call, p api.SendParams) (api.SendResult, error) {
	if protocol.Value(p.WhenBusy) == api.WhenBusySteer && !m.agents.Descends(c.Agent, c.By.Agent.AgentID) {
		return api.SendResult{}, api.Denied("%s did not create %s: it cannot steer it", c.By.Agent.AgentID, c.Agent)
	}
	a, err := m.agents.Resolve(ctx, c.Agent)
	if err != nil {
		return api.SendResult{}, err
	}
	if c.By.Visitor != nil {
		end, err := m.agents.Supervisor().Wait(c.By.Visitor.Waits...)
		if err != nil {
			return api.SendResult{}, err
		}
		defer end()
	}
	return m.delegate(ctx, c, a, p, peerCheck{m.agents.Access(), c.By, a})
}

// peerCheck is whether an agent may send to another one.
type peerCheck struct {
	access agents.Access
	by     rpc.Principal
	to     *supervisor.Agent
}

// CheckTurn implements [supervisor.TurnCheck]: either may have got other permissions while the
// turn waited. Of an agent of another machine, what it might do when it asked holds.
func (c peerCheck) CheckTurn(ctx context.Context) error { return c.access.CheckPeer(ctx, c.by, c.to) }

// delegate sends on behalf of another agent and waits for the answer. A turn
// that nobody waits for any more is cancelled. One that has to wait is checked, unless
// check is nil, when it is to begin.
func (m *turnMethods) delegate(
	ctx context.Context, c *rpc.Call, a *supervisor.Agent, p api.SendParams, check supervisor.TurnCheck,
) (api.SendResult, error) {
	from := *c.By.Agent
	// An agent does not choose for whom its messages are taken.
	p.Source, p.SourceAgentID = new(sourceAgent), &from.AgentID
	prompt, options := promptOf(c, p)
	options.Check = check
	outcome, err := a.Delegate(ctx, from, prompt, options)
	sent, err := sendResult(outcome, agents.Destroyed(a.ID(), err))
	if err == nil && sent.Content != nil && len(*sent.Content) > maxHostText {
		sent.Content, sent.Truncated = new(textcut.Head(*sent.Content, maxHostText)), true
	}
	return sent, err
}

// sourceAgent is the source of a message that an agent sent to another.
const sourceAgent = "agent"
