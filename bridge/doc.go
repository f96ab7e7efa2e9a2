// Package bridge is the façade: it answers JSON-RPC 2.0 over HTTP on the
// loopback interface and turns requests into calls on a supervisor.
//
//	ln, err := bridge.Listen("127.0.0.1", 8765)
//	server, err := bridge.New(bridge.Options{
//		Supervisor: sup, Spec: spec, Sessions: catalogue, Key: key,
//		Addr: ln.Addr().String(), Log: log, Version: "1.0",
//	})
//	err = server.Serve(ctx, ln) // an actor: returns once drained
//
// POST / and /rpc take the global methods, POST /agent/{id} those of an agent;
// GET /agent/{id}/events streams what the agent does, GET /healthz says that a
// nexus server is here. Package api has the table of methods.
//
// Agents are served too: [Server.HostCall] answers what they ask through their
// pipe, by the same table, within what an agent may ask of another one.
//
// Every request passes the same checks in the same order: request line and
// Host, HTTP method, key, path, size, JSON, dispatch. Every refusal is a whole
// JSON-RPC body, also those that net/http makes itself. A client that goes
// away does not stop the turn it started.
//
// A Server is safe for concurrent use. It refuses to listen anywhere but on
// loopback, never logs keys, prompts or answers, and never decodes a child's
// events. The contract is SPEC.md §6.
package bridge
