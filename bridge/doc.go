// Package bridge is the façade: it answers JSON-RPC 2.0 over HTTP on the
// loopback interface and turns requests into calls on a supervisor.
//
//	ln, err := httpd.Listen("127.0.0.1", 8765)
//	server, err := bridge.New(bridge.Options{
//		Supervisor: sup, Runtime: runtime, Store: store, Status: status, Sessions: catalogue,
//		Keys: keys, Notes: notes.OpenFile(home), PlansDir: dir, Addr: ln.Addr().String(), Log: log, Version: "1.0",
//	})
//	err = server.Serve(ctx, ln) // an actor: returns once drained
//
// The package itself wires what answers: httpd speaks HTTP, rpc answers calls by the table
// of methods in api, events streams what agents do.
//
// Agents are served too: [Server.HostCall] answers what they ask through their
// pipe, by the same table, within what an agent may ask of another one.
//
// A client that goes away does not stop the turn it started.
//
// A Server is safe for concurrent use. It never decodes a child's events. The contract is
// SPEC.md §6.
package bridge
