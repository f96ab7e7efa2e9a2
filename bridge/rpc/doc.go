// Package rpc answers calls of the façade's methods, whoever makes them: a client's
// request, an item of a batch, a stream, or another agent. It knows JSON-RPC, the table of
// methods and the errors; it knows no HTTP and starts no agent.
//
//	r := rpc.NewRouter(rpc.Options{Access: access, Metrics: m})
//	rpc.Handle(r, api.SetModel, settings.setModel)
//	r.MustBeWhole()
//	response, record := r.Serve(ctx, &rpc.Call{Request: request, Agent: id, By: principal}, nil)
//
// Serve does the same for every call, in this order: it admits the call, decodes and checks
// the parameters, writes the audit line of what begins, runs the handler, and counts,
// traces, audits and records the end. Errors become codes in one table, ToError.
//
// A Router is filled before it serves; it is safe for concurrent use from then on. A panic
// of a handler is an error of its call. See SPEC.md §6.1 to §6.3 and §6.6.
package rpc
