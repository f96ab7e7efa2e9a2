// Package methods has the handlers of the façade's methods, one file a topic: agents, turns,
// conversation, settings, sessions, tasks, keys, MCP servers.
//
//	methods.Register(router, methods.Options{Agents: registry, Plans: runner, Keys: keyring})
//
// A handler turns parameters that were decoded and checked into calls of the registry of
// agents, and what they say into a result. It knows no HTTP; who may call it was decided
// before (rpc.Router, agents.Registry.Permit). Handlers are safe for concurrent use. See
// SPEC.md §6.3 and bridge/METHODS.md.
package methods
