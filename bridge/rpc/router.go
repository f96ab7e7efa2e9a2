package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/logfile"
	"nexus.internal/bridge/metrics"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/tracing"
	"nexus.internal/supervisor"
)

// Access says which agents there are and who may ask what of them. Its errors reach the
// caller as ToError has them. It is safe for concurrent use.
type Access interface {
	// Find reports that no agent of that id runs or is saved.
	Find(id string) error
	// Permit reports why the call's principal must not make it. The call's agent may be
	// none that there is, where an agent asks.
	Permit(ctx context.Context, c *Call, m api.Method) error
	// Depart prepares a call of an agent of this machine that another one is to answer: the call gets a Visitor. end is
	// called when it is answered.
	Depart(ctx context.Context, c *Call, m api.Method) (end func(), err error)
	// Enter begins a call of agents of this machine, or of sessions, once none of them is being handed over to another one; queues says that it is a
	// send that would wait for its turn. leave ends it. The error is that of ctx.
	Enter(ctx context.Context, names []string, queues bool) (leave func(), err error)
	// Moved is the error of an agent that another machine has by now, with a *MovedError.
	Moved(agent, machine string) error
	// Root is the agent at the top of an agent's tree: itself if no agent created it.
	Root(id string) string
}

// Options are what a Router needs.
type Options struct {
	Access  Access           // required
	Metrics *metrics.Metrics // required
	Log     *zap.Logger      // required
	// Elsewhere answers for the agents of other machines. Nil if there are none.
	Elsewhere Elsewhere
	// Trace begins a span for each call. Nil begins none.
	Trace tracing.Start
	// Audit gets a line for each call that changes something; it is not closed. Nil records
	// none.
	Audit *logfile.Tiers
}

// Router has the handlers of all methods.
type Router struct {
	o       Options
	methods map[string]route
}

// route is a method with its code.
type route struct {
	row    api.Method
	decode func(params jsontext.Value) (any, error)
	run    func(ctx context.Context, c *Call, params any, out *Stream) (any, error)
}

// NewRouter returns a Router without handlers.
func NewRouter(o Options) *Router { return &Router{o: o, methods: map[string]route{}} }

// Handle gives a method its code. The parameters were decoded and checked. The result is
// written as JSON, but not for a notification.
func Handle[P, R any](r *Router, d api.Def[P, R], h func(ctx context.Context, c *Call, p P) (R, error)) {
	HandleStream(r, d, func(ctx context.Context, c *Call, p P, _ *Stream) (R, error) { return h(ctx, c, p) })
}

// HandleStream is Handle for a method that may be answered as it goes: out is nil if the
// client does not want that. A call that fails before out is opened is answered as any other.
func HandleStream[P, R any](r *Router, d api.Def[P, R], h func(ctx context.Context, c *Call, p P, out *Stream) (R, error)) {
	row := d.Row()
	if _, twice := r.methods[row.Name]; twice {
		panic("rpc: method " + row.Name + " has two handlers")
	}
	r.methods[row.Name] = route{
		row:    row,
		decode: func(params jsontext.Value) (any, error) { return api.Decode[P](params) },
		run: func(ctx context.Context, c *Call, params any, out *Stream) (any, error) {
			return h(ctx, c, params.(P), out)
		},
	}
}

// Raw is the JSON of an R that was encoded before, and is answered as it stands. The compiler
// does not check its members: TestGoldensAreAsPublished compares them with the schema of R.
type Raw[R any] jsontext.Value

// HandleRaw is Handle for a method whose result is JSON already.
func HandleRaw[P, R any](r *Router, d api.Def[P, R], h func(ctx context.Context, c *Call, p P) (Raw[R], error)) {
	as := api.Def[P, jsontext.Value](d)
	Handle(r, as, func(ctx context.Context, c *Call, p P) (jsontext.Value, error) {
		raw, err := h(ctx, c, p)
		return jsontext.Value(raw), err
	})
}

// MustBeWhole panics if a method of the table has no handler: then the program is broken.
func (r *Router) MustBeWhole() {
	for _, m := range api.Methods {
		if _, ok := r.methods[m.Name]; !ok {
			panic("rpc: no handler for method " + m.Name)
		}
	}
}

// Streams reports whether a method can be answered as it goes.
func (r *Router) Streams(method string) bool { return r.methods[method].row.Stream != nil }

// Drains reports whether each item is a call of a method that is answered while the server
// drains.
func (r *Router) Drains(items []jsonrpc.Item) bool {
	return !slices.ContainsFunc(items, func(i jsonrpc.Item) bool {
		return i.Refused != nil || !r.methods[i.Request.Method].row.Draining
	})
}

// Serve answers one call and records how it ended. The response is nil for a notification
// and for a caller that left. out is nil unless the answer is wanted as a stream.
func (r *Router) Serve(ctx context.Context, c *Call, out *Stream) (*jsonrpc.Response, Record) {
	start := time.Now()
	c.router = r
	name := "unknown"
	if m, ok := r.methods[c.Request.Method]; ok {
		name = m.row.Name
	}
	end := tracing.End(func(string, ...tracing.Attribute) {})
	if c.By.Agent == nil && r.o.Trace != nil {
		ctx, end = r.o.Trace.Begin(ctx, tracing.Server, name, tracing.String("rpc.system.name", "jsonrpc"),
			tracing.String("rpc.method", name), tracing.String("nexus.agent.id", c.Agent), tracing.String("nexus.request.id", c.RequestID))
	}
	response := &jsonrpc.Response{ID: c.Request.ID}
	value, err := r.run(ctx, c, out)
	if err == nil {
		c.Share.Work(func() { response.Result, err = encode(value) })
	}
	if err == nil {
		if err = c.Share.addResult(r.methods[name].row, len(response.Result)); err != nil {
			response.Result = nil
		}
	}
	record := Record{Status: 200, Trace: tracing.From(ctx)}
	switch {
	case err == nil:
	case errors.Is(err, ErrSlowClient), ctx.Err() != nil && (c.By.Agent != nil || Left(ctx)):
		response, record.Status, record.Left = nil, 0, true
	default:
		if ctx.Err() != nil && !errors.Is(err, supervisor.ErrDraining) { // which may say more
			err = context.Cause(ctx)
		}
		e := ToErrorOf(r.methods[name].row, err)
		response.Error, record.Status, record.Moved, record.err = e.Err, e.Status, e.Moved, e.Err
		if e.Internal {
			record.Fault = err
		}
	}
	record.of(c, time.Since(start))
	r.finish(c, record, end)
	if c.Request.IsNotification() {
		response = nil
	}
	return response, record
}

// run admits a call, decodes its parameters and calls its handler, or has the machine answer that
// has its agent. A panic in it is its own failure and nobody else's.
func (r *Router) run(ctx context.Context, c *Call, out *Stream) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	method, err := r.find(c)
	if err != nil {
		return nil, err
	}
	agent := c.Agent
	for try := 0; ; try++ {
		c.Agent = agent
		value, err = r.once(ctx, c, method, out, try == 0)
		if !r.follows(ctx, c, out, try, err) {
			return value, err
		}
	}
}

// once is run for what is known now of whose the agents are. first says that nothing of the call was done before.
func (r *Router) once(ctx context.Context, c *Call, method route, out *Stream, first bool) (value any, err error) {
	leave := func() {}
	defer func() { leave() }()
	if c.Agent != "" {
		if leave, err = r.enter(ctx, leave, []string{c.Agent}, false); err != nil {
			return nil, err
		}
	}
	machine, err := r.admit(ctx, c, method)
	if err != nil {
		return nil, err
	}
	if err := r.certain(method.row); err != nil {
		return nil, err
	}
	params, err := method.decode(c.Request.Params)
	if err != nil {
		return nil, err
	}
	names := method.row.Named(params) // the parameters themselves are not kept while it runs
	switch queued := queues(c, params); {
	case machine != "":
	case c.Agent == "":
		leave, err = r.enter(ctx, leave, names, false)
	case queued:
		if leave, err = r.enter(ctx, leave, []string{c.Agent}, true); err == nil {
			machine = r.owner(c)
		}
	}
	if err == nil && machine == "" {
		machine, err = r.place(c, method.row, params)
	}
	if err == nil && c.Agent != "" {
		err = r.goneTo(c, []string{c.Agent})
	} else if err == nil {
		err = r.goneTo(c, names)
	}
	if err != nil {
		return nil, err
	}
	if first {
		r.writeAudit(c, statusBegun, 0)
	}
	if machine != "" {
		leave()
		leave = func() {}
		return r.elsewhere(ctx, c, method.row, machine, out)
	}
	value, err = method.run(ctx, c, params, out)
	if machine = claimed(c, names, err); machine != "" {
		return r.o.Elsewhere.Call(ctx, machine, c, out)
	}
	return value, err
}

// enter ends one call of agents and begins another one. The new leave is never nil.
func (r *Router) enter(ctx context.Context, leave func(), names []string, queues bool) (func(), error) {
	leave()
	if r.o.Elsewhere == nil {
		return func() {}, nil
	}
	next, err := r.o.Access.Enter(ctx, names, queues)
	if err != nil {
		return func() {}, err
	}
	return next, nil
}

// elsewhere has another machine answer a call.
func (r *Router) elsewhere(ctx context.Context, c *Call, m api.Method, machine string, out *Stream) (any, error) {
	if c.By.Agent != nil {
		end, err := r.o.Access.Depart(ctx, c, m)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	if c.Agent != "" {
		c.Asked = askedAgent
	}
	return r.o.Elsewhere.Call(ctx, machine, c, out)
}

// find is the method of a call, and takes the agent that an agent names from its parameters.
func (r *Router) find(c *Call) (method route, err error) {
	method, ok := r.methods[c.Request.Method]
	if c.By.Agent != nil {
		if !ok || method.row.Agents == api.NoAgent {
			return route{}, api.Denied("an agent cannot ask for %s", ClipName(c.Request.Method))
		}
		if !c.Forwarded {
			if c.Agent, c.Request.Params, err = splitTarget(method.row, c.Request.Params); err != nil {
				return route{}, err
			}
		}
	}
	return method, nil
}

// admit checks what comes before the parameters' values: that there is such an agent,
// running or saved, and such a method, that the principal may call it, and that the
// parameters are named. If another machine is to answer, that is named: it looks for the agent, too.
func (r *Router) admit(ctx context.Context, c *Call, method route) (machine string, err error) {
	ok := method.row.Name != ""
	if c.By.Agent != nil {
		if method.row.Scope == api.Global || r.owner(c) == "" {
			if err := r.o.Access.Permit(ctx, c, method.row); err != nil {
				return "", err
			}
		}
		if method.row.Scope == api.Global {
			c.Agent = ""
		}
	}
	scope := api.Global
	if c.Agent != "" {
		scope = api.Agent
		if machine = r.owner(c); machine == "" {
			if err := r.o.Access.Find(c.Agent); err != nil {
				return "", err
			}
		}
	}
	if !ok || method.row.Scope != scope && method.row.Scope != api.Both {
		return "", unknownMethod(c.Request.Method, scope, ok)
	}
	if c.By.Agent == nil {
		if err := r.o.Access.Permit(ctx, c, method.row); err != nil {
			return "", err
		}
	}
	if c.Request.Positional {
		return "", &api.ParamError{Problem: "Invalid params: want an object, have an array"}
	}
	return machine, nil
}

// encode writes a result; a jsontext.Value is one already.
func encode(value any) (jsontext.Value, error) {
	if raw, ok := value.(jsontext.Value); ok {
		return raw, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return raw, nil
}

// splitTarget takes the agent that a host call is about from its parameters; "" for none.
// rest is the parameters of the method itself.
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
	if !there {
		return "", nil, &api.ParamError{Param: "agent_id", Problem: "Missing required parameter: agent_id"}
	}
	if err := api.CheckAgentID(target); err != nil {
		return "", nil, err
	}
	delete(members, "agent_id")
	var out bytes.Buffer
	if err := json.MarshalWrite(&out, members); err != nil {
		return "", nil, fmt.Errorf("encode parameters: %w", err)
	}
	return target, out.Bytes(), nil
}

// Left reports whether ctx ended because the client left.
func Left(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled)
}
