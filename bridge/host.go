package bridge

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor"
)

// maxHostText bounds the content of an answer to a host call, in bytes: written
// as JSON it fits a frame, whatever it is.
const maxHostText = 128 << 10

// HostCall answers what an agent asks by a host_call, as a client of the façade
// would be answered, with the agent for its identity: see SPEC §5.8. params has
// agent_id beside the method's own for a method of an agent. It is the
// supervisor.HostHandler of the server's agents.
func (s *Server) HostCall(ctx context.Context, from supervisor.Caller, method string, params jsontext.Value) (jsontext.Value, *protocol.HostError) {
	if s.requests.Closed() {
		e := rpc.ToError(supervisor.ErrDraining)
		return nil, hostError(e.Err)
	}
	response, record := s.router.Serve(ctx, &rpc.Call{
		Request: jsonrpc.Request{Method: method, Params: params, ID: jsonrpc.NullID}, By: rpc.Principal{Agent: &from},
	}, nil)
	s.logHostCall(from, record)
	switch {
	case record.Left:
		return nil, &protocol.HostError{Code: int(jsonrpc.CodeInternalError), Message: "nobody waits any more"}
	case response.Error != nil:
		return nil, hostError(response.Error)
	}
	return response.Result, nil
}

// hostError is an error as an agent is told it.
func hostError(e *jsonrpc.Error) *protocol.HostError {
	message := e.Message
	if e.Data.Type != string(api.KindInternalError) {
		message = jsonrpc.Reason(message, e.Data.Details)
	}
	return &protocol.HostError{Code: int(e.Code), Message: message}
}

// sendFor is send for another agent, whose turn waits for the answer.
func (s *Server) sendFor(ctx context.Context, c *rpc.Call, p api.SendParams) (api.SendResult, error) {
	if protocol.Value(p.WhenBusy) == api.WhenBusySteer && !s.descends(c.Agent, c.By.Agent.AgentID) {
		return api.SendResult{}, api.Denied("%s did not create %s: it cannot steer it", c.By.Agent.AgentID, c.Agent)
	}
	a, err := s.agent(ctx, c.Agent)
	if err != nil {
		return api.SendResult{}, err
	}
	sent, err := s.delegate(ctx, a, *c.By.Agent, p, func(ctx context.Context, a *supervisor.Agent) error {
		return s.checkPeer(ctx, c.By.Agent.AgentID, a)
	})
	if err != nil {
		return api.SendResult{}, err
	}
	return sent, nil
}

// delegate sends on behalf of another agent and waits for the answer. A turn
// that nobody waits for any more is cancelled. One that has to wait is checked, unless
// check is nil, when it is to begin.
func (s *Server) delegate(
	ctx context.Context, a *supervisor.Agent, from supervisor.Caller, p api.SendParams, check func(context.Context, *supervisor.Agent) error,
) (api.SendResult, error) {
	// An agent does not choose for whom its messages are taken.
	p.Source, p.SourceAgentID = new(sourceAgent), &from.AgentID
	prompt, options := promptOf(p)
	outcome, _, err := following(ctx, s, a, func(a *supervisor.Agent) (supervisor.Result, error) {
		if check != nil {
			options.Check = func(ctx context.Context) error { return check(ctx, a) }
		}
		return a.Delegate(ctx, from, prompt, options)
	})
	sent, err := sendResult(outcome, err)
	if err == nil && sent.Content != nil && len(*sent.Content) > maxHostText {
		sent.Content, sent.Truncated = new(textcut.Head(*sent.Content, maxHostText)), true
	}
	return sent, err
}

// sourceAgent is the source of a message that an agent sent to another.
const sourceAgent = "agent"

// logHostCall writes the line of one host call, as that of a request, with the
// agent that asked.
func (s *Server) logHostCall(from supervisor.Caller, r rpc.Record) {
	if r.Fault != nil {
		s.log.Error("host call failed", zap.String("agent", from.AgentID), zap.Error(r.Fault))
	}
	fields := []zap.Field{
		zap.Dict("data", r.Fields(r.Outcome())...), zap.String("agent", from.AgentID), zap.Uint64("incarnation", from.Incarnation),
	}
	if r.Agent != "" {
		fields = append(fields, zap.String("target", strings.ToValidUTF8(r.Agent, "")))
	}
	s.log.Info("host call", fields...)
}
