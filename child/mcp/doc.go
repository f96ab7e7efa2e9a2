// Package mcp makes the tools, resources and prompts of MCP servers into tools
// of an agent.
//
//	servers := mcp.Load(mcp.Files{Personal: home, Project: dir, Environ: os.Environ()})
//	m := mcp.New(mcp.Options{Servers: servers, Start: mcp.Sandboxed(rules)})
//	defer m.Close(ctx)
//	m.Prepare(ctx)    // before a turn: starts what is not started, waits 2 s at most
//	tools := m.Tools() // a toolenv.Source
//
// Servers are programs that speak over stdin and stdout, or are reached by
// streamable HTTP. Each has three goroutines for as long as it is connected; Close joins
// them and ends all programs. A [Manager] is safe
// for concurrent use. A call never waits for another one's server.
//
// A server is somebody else's program: one that hangs, floods, crashes or lies
// costs the tool call that it was asked for. It is started anew by the next
// call, at once or, if it fails again and again, after a pause; one that never
// was ready has a tool for that, which says why. Its messages are bounded, and
// so is what is kept of it.
//
// What it refuses: to start what a project's file names before a tool call that
// asks for it was allowed; to give a server any variable of our environment that
// its entry does not name; redirects; requests of a server for anything but the
// working directory and a ping. The contract is SPEC.md §4.9.
package mcp
