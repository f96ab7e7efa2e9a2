// Package claude speaks the stream-json protocol of Claude Code, both ways, with control requests.
//
//	driver := claude.Driver{}
//	session, err := driver.Open(ctx, opening)
//
// One process has the whole conversation. Its text comes in pieces and again as whole messages, of
// which only the calls are taken then. What it asks (can_use_tool) is decided by the client; all else that
// it wants of its host is refused. What sub-agents of the program say is passed on as foreign. A
// session is safe for concurrent use, as [foreign.Session] says. See SPEC.md §4.11.
package claude
