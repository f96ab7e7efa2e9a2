package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
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
	start := time.Now()
	c := &call{from: &from, request: jsonrpc.Request{Method: method, Params: params, ID: jsonrpc.NullID}}
	var response *jsonrpc.Response
	value, err := s.hostDispatch(ctx, c)
	if err == nil {
		response, err = result(c.request.ID, value)
	}
	if err == nil {
		s.logHostCall(c, start, nil)
		return response.Result, nil
	}
	if ctx.Err() != nil {
		s.logHostCall(c, start, errCallerLeft)
		return nil, &protocol.HostError{Code: int(jsonrpc.CodeInternalError), Message: "nobody waits any more"}
	}
	r := explain(err)
	if r.internal {
		s.log.Error("host call failed", zap.String("agent", from.AgentID), zap.Error(err))
	}
	s.logHostCall(c, start, r.err)
	message := r.err.Message
	if !r.internal {
		message = jsonrpc.Reason(message, r.err.Data.Details)
	}
	return nil, &protocol.HostError{Code: int(r.err.Code), Message: message}
}

func (s *Server) hostDispatch(ctx context.Context, c *call) (any, error) {
	if s.requests.isClosed() {
		return nil, supervisor.ErrDraining
	}
	m, ok := api.Find(c.request.Method)
	if !ok || m.Agents == api.NoAgent {
		return nil, &deniedError{fmt.Sprintf("an agent cannot ask for %s", clipName(c.request.Method))}
	}
	target, rest, err := splitTarget(m, c.request.Params)
	if err != nil {
		return nil, err
	}
	if m.Scope != api.Global {
		c.id, c.request.Params = target, rest
	}
	if err := s.permit(ctx, *c.from, m, target); err != nil {
		return nil, err
	}
	return s.dispatch(ctx, c)
}

// splitTarget takes the agent that a call is about from the parameters; "" for
// none. rest is the parameters of the method itself.
func splitTarget(m api.Method, params jsontext.Value) (target string, rest jsontext.Value, err error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(params, &members); err != nil || members == nil {
		return "", nil, &api.ParamError{Problem: "Invalid params: want an object"}
	}
	raw, there := members["agent_id"]
	if there && raw.Kind() != '"' {
		if raw.Kind() == 'n' && m.Scope == api.Global {
			return "", params, nil
		}
		return "", nil, api.Invalid("agent_id", "must be a string")
	}
	if there {
		if err := json.Unmarshal(raw, &target); err != nil {
			return "", nil, api.Invalid("agent_id", "must be a string")
		}
	}
	if m.Scope == api.Global {
		return target, params, nil
	}
	switch {
	case !there:
		return "", nil, &api.ParamError{Param: "agent_id", Problem: "Missing required parameter: agent_id"}
	case !api.ValidAgentID(target):
		return "", nil, api.Invalid("agent_id", "is not the name of an agent")
	}
	delete(members, "agent_id")
	var out bytes.Buffer
	if err := json.MarshalWrite(&out, members); err != nil {
		return "", nil, fmt.Errorf("encode parameters: %w", err)
	}
	return target, out.Bytes(), nil
}

// deniedError says that an agent may not have what it asks for.
type deniedError struct{ reason string }

func (e *deniedError) Error() string { return e.reason }

// permit reports why an agent may not call the method for the target.
func (s *Server) permit(ctx context.Context, from supervisor.Caller, m api.Method, target string) error {
	switch m.Agents {
	case api.AnyAgent:
		return nil
	case api.Created:
		if _, err := s.o.Supervisor.Agent(target); err != nil {
			return &agentError{id: target, err: supervisor.ErrNotFound}
		}
		if !s.descends(target, from.AgentID) {
			return &deniedError{fmt.Sprintf("%s did not create %s: %s is for agents that one has created", from.AgentID, target, m.Name)}
		}
		return nil
	case api.Awake, api.Peers:
		if err := s.checkAwake(from.AgentID, target); err != nil || m.Agents == api.Awake {
			return err
		}
		other, err := s.agent(ctx, target)
		if err != nil {
			return err
		}
		return s.checkPeer(ctx, from.AgentID, other)
	case api.Unrestricted:
		return s.checkYolo(ctx, from.AgentID)
	default:
		panic(fmt.Sprintf("bridge: %s is not for agents", m.Name))
	}
}

// sendFor is send for another agent, whose turn waits for the answer.
func (s *Server) sendFor(ctx context.Context, c *call, p api.SendParams) (any, error) {
	if protocol.Value(p.WhenBusy) == api.WhenBusySteer && !s.descends(c.id, c.from.AgentID) {
		return nil, &deniedError{fmt.Sprintf("%s did not create %s: it cannot steer it", c.from.AgentID, c.id)}
	}
	a, err := s.agent(ctx, c.id)
	if err != nil {
		return nil, err
	}
	sent, err := s.delegate(ctx, a, *c.from, p, func(ctx context.Context, a *supervisor.Agent) error {
		return s.checkPeer(ctx, c.from.AgentID, a)
	})
	if err != nil {
		return nil, err
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

var errCallerLeft = errors.New("caller left")

// logHostCall writes the line of one host call, as that of a request, with the
// agent that asked.
func (s *Server) logHostCall(c *call, start time.Time, err error) {
	status, code := outcome(err)
	data := []zap.Field{
		zap.String("method", clipName(c.request.Method)),
		zap.String("id", textcut.Head(c.from.TurnID, maxLoggedID)),
		zap.Float64("duration_ms", milliseconds(time.Since(start))),
		zap.String("status", status),
	}
	if code != 0 {
		data = append(data, zap.Int("code", int(code)))
	}
	fields := []zap.Field{
		zap.Dict("data", data...), zap.String("agent", c.from.AgentID), zap.Uint64("incarnation", c.from.Incarnation),
	}
	if c.id != "" {
		fields = append(fields, zap.String("target", strings.ToValidUTF8(c.id, "")))
	}
	s.log.Info("host call", fields...)
	s.metrics.Call("agent", c.request.Method, int(code), time.Since(start))
	s.audit(c, status, code)
}
