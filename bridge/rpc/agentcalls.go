package rpc

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
)

// AgentCalls answers what agents ask by host_call, as a client of the façade would be
// answered, with the agent for its principal: see SPEC §5.8. All fields are required. It is
// safe for concurrent use.
type AgentCalls struct {
	Router *Router
	// Requests is the work of the server: once it is closed, calls are refused.
	Requests *DrainGroup
	// Log gets a line for each call, as far as Lines lets it.
	Log   *zap.Logger
	Lines *LineLimit
}

// Serve answers one call. params has agent_id beside the method's own for a method of an
// agent.
func (a AgentCalls) Serve(ctx context.Context, from supervisor.Caller, method string, params jsontext.Value) (jsontext.Value, *protocol.HostError) {
	if a.Requests.Closed() {
		return nil, hostError(ToError(supervisor.ErrDraining).Err)
	}
	response, record := a.Router.Serve(ctx, &Call{
		Request: jsonrpc.Request{Method: method, Params: params, ID: jsonrpc.NullID}, By: Principal{Agent: &from},
	}, nil)
	a.log(from, record)
	switch {
	case record.Left:
		return nil, &protocol.HostError{Code: int(jsonrpc.CodeInternalError), Message: "nobody waits any more"}
	case response.Error != nil:
		return nil, hostError(response.Error)
	}
	return response.Result, nil
}

// hostError is an error as an agent gets it.
func hostError(e *jsonrpc.Error) *protocol.HostError {
	message := e.Message
	if e.Data.Type != string(api.KindInternalError) {
		message = jsonrpc.Reason(message, e.Data.Details)
	}
	return &protocol.HostError{Code: int(e.Code), Message: message}
}

// log writes the line of one call, as that of a request, with the agent that asked.
func (a AgentCalls) log(from supervisor.Caller, r Record) {
	if r.Fault != nil {
		a.Log.Error("host call failed", zap.String("agent", from.AgentID), zap.Error(r.Fault))
	}
	if !a.Lines.hostCall(a.Router.o.Access.Root(from.AgentID), "host_call "+r.Outcome()) {
		return
	}
	fields := []zap.Field{
		zap.Dict("data", r.Fields(r.Outcome())...), zap.String("agent", from.AgentID), zap.Uint64("incarnation", from.Incarnation),
	}
	if r.Agent != "" {
		fields = append(fields, zap.String("target", strings.ToValidUTF8(r.Agent, "")))
	}
	a.Log.Info("host call", fields...)
}
