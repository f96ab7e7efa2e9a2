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
