// Package pi speaks the RPC mode of the coding agent pi: commands and events, one JSON object a line.
//
//	driver := pi.Driver{}
//	session, err := driver.Open(ctx, opening)
//
// One process has the whole conversation. pi asks nobody before it runs a tool: only its extensions
// ask, of which a yes or no is decided by the client, and all else is cancelled. A session is safe
// for concurrent use, as [foreign.Session] says. See SPEC.md §4.11.
package pi
