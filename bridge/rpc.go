package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/tracing"
	"nexus.internal/supervisor"
)

// call is one request on its way through a handler.
type call struct {
	request jsonrpc.Request
	// id is the agent of the path; "" for a global method.
	id string
	// pass is what let the client in.
	pass pass
	// from is the agent that asks, by a host call; nil for a client.
	from *supervisor.Caller
	// incarnation is what the log says; a handler sets it where it knows.
	incarnation uint64
	// requestID is that of the HTTP request; "" for a host call.
	requestID string
	// noted is what the audit log has beside the parameters (note).
	noted map[string]string
	// endSpan ends the call's span; nil before it began.
	endSpan tracing.End
	// sake is the method for which this one is called, and plan the run; "" if nobody
	// but the client wants it.
	sake, plan string
}

// handler runs one method. The result is written as JSON; a jsontext.Value is
// written as it stands.
type handler func(ctx context.Context, c *call) (any, error)

// bind makes a handler of a function with typed parameters. Parameters are
// decoded and checked before f runs.
func bind[P any](f func(ctx context.Context, c *call, p P) (any, error)) handler {
	return func(ctx context.Context, c *call) (any, error) {
		p, err := api.Decode[P](c.request.Params)
		if err != nil {
			return nil, err
		}
		return f(ctx, c, p)
	}
}

// methodTable gives each row of api.Methods its code. It panics if one is left
// over on either side: then the program is broken.
func (s *Server) methodTable() map[string]handler {
	table := map[string]handler{
		"create_agent":    bind(s.createAgent),
		"destroy_agent":   bind(s.destroyAgent),
		"list_agents":     bind(s.listAgents),
		"rpc.discover":    bind(s.discover),
		"shutdown_server": bind(s.shutdownServer),
		"rotate_key":      bind(s.rotateKey),
		"create_key":      bind(s.createKey),
		"list_keys":       bind(s.listKeys),
		"revoke_key":      bind(s.revokeKey),

		"create_page_code": bind(s.createPageCode),

		"execute_task":   bind(s.executeTask),
		"create_plan":    bind(s.createPlan),
		"validate_code":  bind(s.validateCode),
		"run_plan":       bind(s.runPlan),
		"update_context": bind(s.updateContext),

		"list_sessions":       bind(s.listSessions),
		"load_session":        bind(s.loadSession),
		"save_session":        bind(s.saveSession),
		"clone_session":       bind(s.cloneSession),
		"rename_session":      bind(s.renameSession),
		"delete_session":      bind(s.deleteSession),
		"get_agent_summaries": bind(s.agentSummaries),

		"send":         bind(s.send),
		"cancel":       bind(s.cancel),
		"shutdown":     bind(s.shutdown),
		"get_tokens":   bind(s.getTokens),
		"get_context":  bind(s.getContext),
		"get_messages": bind(s.getMessages),
		"compact":      bind(s.compact),
		"list_models":  bind(s.listModels),
		"get_model":    bind(s.getModel),
		"set_model":    bind(s.setModel),

		"set_cwd":            bind(s.setCwd),
		"get_permissions":    bind(s.getPermissions),
		"set_permissions":    bind(s.setPermissions),
		"respond_permission": bind(s.respondPermission),
		"get_system_prompt":  bind(s.getSystemPrompt),
		"set_system_prompt":  bind(s.setSystemPrompt),
		"list_tools":         bind(s.listTools),

		"mcp_list_servers": bind(s.mcpListServers),
		"mcp_status":       bind(s.mcpStatus),
		"mcp_connect":      bind(s.mcpConnect),
		"mcp_disconnect":   bind(s.mcpDisconnect),
	}
	for _, m := range api.Methods {
		if table[m.Name] == nil {
			panic("bridge: no handler for method " + m.Name)
		}
	}
	if len(table) != len(api.Methods) {
		panic(fmt.Sprintf("bridge: %d handlers for %d methods", len(table), len(api.Methods)))
	}
	return table
}

// serveRPC answers a POST: the checks of size, type and JSON, then dispatch.
func (s *Server) serveRPC(x *exchange, to target) {
	body, refused, ok := s.takeBody(x)
	if !ok {
		s.refuse(x, refused)
		return
	}
	if !s.requests.enter() {
		s.refuse(x, draining)
		return
	}
	defer s.requests.leave()
	if x.pass.valid != nil && x.pass.valid.Err() != nil { // it ended while the body came
		s.refuse(x, wrongKey)
		return
	}
	message := jsonrpc.DecodeBody(body, MaxBatch)
	signed, refused, ok := s.checkSigned(x, message.Items)
	if ok {
		refused, ok = s.checkRate(x, len(message.Items))
	}
	if ok { // last, so that what came too early may come again
		refused, ok = s.useSignatures(x, signed)
	}
	if !ok {
		s.refuse(x, refused)
		return
	}

	if message.Batch {
		s.serveBatch(x, to, message.Items)
		return
	}
	item := message.Items[0]
	if item.Refused != nil {
		s.answer(x, http.StatusBadRequest, jsonrpc.AppendResponse(nil, *item.Refused))
		x.recordRefusal(refusal{status: http.StatusBadRequest, err: item.Refused.Error})
		return
	}
	c := &call{request: item.Request, id: to.agent, pass: x.pass, requestID: x.id}
	if streams(x.r, c) {
		if c.id == "" {
			s.servePlanStream(x, c)
		} else {
			s.serveStream(x, c)
		}
		return
	}
	response, status := s.run(x, c)
	switch {
	case c.request.IsNotification():
		x.w.WriteHeader(http.StatusNoContent)
	case response != nil:
		s.answer(x, status, jsonrpc.AppendResponse(nil, *response))
	}
}

// takeBody reads a body of the right size and type, unless it is plain already that it
// is in vain. Of one without a key it says no more than that there is none, whatever
// else is wrong with it.
func (s *Server) takeBody(x *exchange) (body []byte, refused refusal, ok bool) {
	keyless := x.pass.key.IsZero()
	if refused, ok = s.foresee(x); ok && keyless {
		select {
		case s.keyless <- struct{}{}:
			defer func() { <-s.keyless }()
		default:
			return nil, s.later(x, tooMany, time.Second), false
		}
	}
	if ok {
		body, refused, ok = s.readBody(x)
	}
	if !ok && keyless {
		refused = noKey
	}
	return body, refused, ok
}

// foresee refuses what no body could make good.
func (s *Server) foresee(x *exchange) (refused refusal, ok bool) {
	if x.r.ContentLength > MaxBody {
		return tooLarge, false
	}
	if refused, ok = checkType(x.r.Header); !ok {
		return refused, false
	}
	if s.requests.isClosed() {
		return draining, false
	}
	if wait := s.settings.Load().rate.Wait(x.pass.grant.ID); wait > 0 && !x.pass.key.IsZero() {
		return s.later(x, tooMany, wait), false
	}
	return refusal{}, true
}

// serveBatch runs all items at once and answers in their order.
func (s *Server) serveBatch(x *exchange, to target, items []jsonrpc.Item) {
	x.log.batch = true
	responses := make([]*jsonrpc.Response, len(items))
	statuses := make([]int, len(items))
	var running sync.WaitGroup
	for i, item := range items {
		if item.Refused != nil {
			responses[i] = item.Refused
			x.recordRefusal(refusal{status: http.StatusOK, err: item.Refused.Error})
			continue
		}
		running.Go(func() {
			responses[i], statuses[i] = s.run(x, &call{request: item.Request, id: to.agent, pass: x.pass, requestID: x.id})
		})
	}
	running.Wait()
	if x.r.Context().Err() != nil && gone(x.r.Context()) {
		return
	}
	body, status := joinBatch(responses, statuses)
	if body == nil {
		x.w.WriteHeader(http.StatusNoContent)
		return
	}
	s.answer(x, status, body)
}

// joinBatch writes the responses that are there as an array; nil if none is. A
// result that would make it longer than MaxBatchAnswer gives way to an error.
// The status is 200, or 404 if the agent of the path is what all items lack.
func joinBatch(responses []*jsonrpc.Response, statuses []int) (body []byte, status int) {
	results, answers, lacking := 0, 0, 0
	for i, r := range responses {
		if r == nil {
			continue
		}
		answers++
		if statuses[i] == http.StatusNotFound {
			lacking++
		}
		if results += len(r.Result); results > MaxBatchAnswer {
			results -= len(r.Result)
			r = &jsonrpc.Response{ID: r.ID, Error: answerTooLarge.err}
		}
		if body == nil {
			body = append(body, '[')
		} else {
			body = append(body, ',')
		}
		body = jsonrpc.AppendResponse(body, *r)
	}
	if body == nil {
		return nil, http.StatusNoContent
	}
	if lacking == answers {
		return append(body, ']'), http.StatusNotFound
	}
	return append(body, ']'), http.StatusOK
}

// run dispatches one request and records how it ended. The response is nil for a
// notification and for a client that left; status is what HTTP says of it.
func (s *Server) run(x *exchange, c *call) (response *jsonrpc.Response, status int) {
	start := time.Now()
	value, err := s.dispatch(s.beginSpan(x, c), c)
	if err == nil {
		response, err = result(c.request.ID, value)
	}
	if err == nil {
		s.recordCall(x, c, start, nil, nil)
		status = http.StatusOK
	} else {
		response, status = s.failure(x, c, start, err)
	}
	if c.request.IsNotification() {
		return nil, http.StatusNoContent
	}
	return response, status
}

// failure is the answer to a request that came to nothing, nil if nobody is
// there to read it. It is recorded.
func (s *Server) failure(x *exchange, c *call, start time.Time, err error) (*jsonrpc.Response, int) {
	ctx := x.r.Context()
	if ctx.Err() != nil {
		if gone(ctx) {
			s.recordCall(x, c, start, errClientLeft, nil)
			return nil, 0
		}
		if !errors.Is(err, supervisor.ErrDraining) { // which may say more
			err = context.Cause(ctx)
		}
	}
	r := explain(err)
	var fault error
	if r.internal {
		fault = err
	}
	s.recordCall(x, c, start, r.err, fault)
	return &jsonrpc.Response{ID: c.request.ID, Error: r.err}, r.status
}

var errClientLeft = errors.New("client left")

func result(id jsonrpc.ID, value any) (*jsonrpc.Response, error) {
	if raw, ok := value.(jsontext.Value); ok {
		return &jsonrpc.Response{ID: id, Result: raw}, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return &jsonrpc.Response{ID: id, Result: raw}, nil
}

// dispatch finds the method and runs it. A panic in it is its own failure and
// nobody else's.
func (s *Server) dispatch(ctx context.Context, c *call) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := s.admit(c); err != nil {
		return nil, err
	}
	s.intend(c)
	return s.methods[c.request.Method](ctx, c)
}

// admit checks what comes before the parameters' values: that there is such an
// agent, running or saved, such a method, and no positional parameters.
func (s *Server) admit(c *call) error {
	scope := api.Global
	if c.id != "" {
		scope = api.Agent
		if _, err := s.o.Supervisor.Agent(c.id); err != nil && !s.o.Sessions.Exists(c.id) {
			return &agentError{id: c.id, err: supervisor.ErrNotFound}
		}
	}
	name := c.request.Method
	m, ok := api.Find(name)
	if !ok || m.Scope != scope && m.Scope != api.Both {
		return &methodError{name: clipName(name), scope: scope, elsewhere: ok}
	}
	if err := c.pass.may(m); err != nil {
		return err
	}
	if err := s.checkStart(c.pass, c.id, true); err != nil {
		return err
	}
	if c.request.Positional {
		return &api.ParamError{Problem: positional.err.Message}
	}
	return nil
}

// clipName bounds a name as a client wrote it, as of a method.
func clipName(name string) string { return textcut.Clip(name, 64) }
