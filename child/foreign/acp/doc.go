// Package acp runs agents that speak the Agent Client Protocol, version 1, on stdin and stdout.
//
//	driver := acp.Driver{}
//	session, err := driver.Open(ctx, opening)
//
// A session is a client of the protocol: it sends prompts, turns updates into the calls of a
// [foreign.Sink], and answers the program's questions and its reads and writes of files by way of
// [foreign.Client]. It offers no terminals: programs run their commands themselves.
//
// The reader of [rpcpeer.Peer] alone calls the sink, so that the order is that of the program. What
// the program says between turns is not passed on, but for settings (its commands, its mode), of which
// the next turn begins with the last. See https://agentclientprotocol.com and SPEC.md §4.11.
package acp
