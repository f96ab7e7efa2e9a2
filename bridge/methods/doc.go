// Package methods has the handlers of the façade's methods, one file a topic: agents, turns,
// conversation, settings, sessions, tasks, keys, MCP servers.
//
//	methods.Register(router, methods.Options{Agents: registry, Plans: runner, Keys: keyring})
//
// A handler gets parameters that were decoded and checked, calls the registry of agents,
// and returns a result. It knows no HTTP. Whether the principal may call the method was
// decided before (rpc.Router, agents.Access.Permit). Handlers are safe for concurrent use.
// See SPEC.md §6.3 and bridge/METHODS.md.
package methods
