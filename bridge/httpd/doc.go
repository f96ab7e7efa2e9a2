// Package httpd serves the façade's HTTP on the loopback interface, and by TLS to other machines: it parses requests,
// authenticates them, bounds connections, rates and bodies, and writes answers and the
// access log. It knows no method: calls go to an [rpc.Router], event streams to
// [events.Streams].
//
//	ln, err := httpd.Listen("127.0.0.1", 8765)
//	server, err := httpd.New(httpd.Options{Router: router, Events: streams, Keys: keys, Addr: ln.Addr().String(), …})
//	err = server.Serve(ln) // until Stop
//
// POST / and /rpc take the global methods, POST /agent/{id} those of an agent;
// GET /agent/{id}/events and GET /events stream what agents do; GET /healthz says that a
// nexus server is here, GET /readyz whether it can work.
//
// Every request passes the same checks in the same order: request line and Host, Origin,
// HTTP method, key, path, rate, size and type of the body, JSON, signatures. Every refusal is a
// whole JSON-RPC body, also those that net/http makes itself.
//
// A Server is safe for concurrent use. Without TLS it refuses to listen anywhere but on loopback. It
// never logs keys, prompts or answers. See SPEC.md §6.1, §6.5 and §6.6.
package httpd
