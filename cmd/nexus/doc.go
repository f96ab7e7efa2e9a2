// Nexus is the server: one process per agent, supervised, and one HTTP
// JSON-RPC 2.0 front on the loopback interface, and by TLS for other machines.
//
//	nexus serve [PORT] [--home DIR] [--child PATH] [--host ADDRESS]
//	nexus VERB …                        every verb of nexus-rpc
//
// Serve wires the parts together and runs them as actors of one group: the
// signals, the façade, the supervisor, the broker of the models. They end in
// that order, so that what runs may finish before the agents are stopped. This is the only program that
// knows both halves, and spec.go the only place that knows the flags of
// nexus-child. The contract is SPEC.md §2.
package main
