// Package codex runs the agent Codex by its app-server: JSON-RPC on stdin and stdout, a message a line.
//
//	driver := codex.Driver{}
//	session, err := driver.Open(ctx, opening)
//
// A conversation is a thread of the app-server, and a prompt is a turn of it. Codex asks before it
// runs commands and changes files, but for commands that it knows to only look, and keeps them in its own
// sandbox besides (approval policy untrusted, sandbox workspace-write). Requests for more rights
// are granted nothing. The reader of [rpcpeer.Peer] alone calls the sink. See SPEC.md §4.11.
package codex
