// Package rpcpeer speaks JSON-RPC 2.0 with a program, a message a line, both ways.
//
//	peer := rpcpeer.Start(program, handler, rpcpeer.Options{Log: log})
//	defer peer.Close()
//	result, err := peer.Call(ctx, "initialize", params)
//
// One goroutine reads. It hands on notifications itself, one after the other, so that their order is
// that of the program, and the program goes no faster than they are taken. Each request of the
// program is answered in a goroutine of its own, at most 64 at once; further ones are refused. Close joins
// all of them. All methods are safe for concurrent use.
//
// A line that is no message is passed over. A program that writes 64 of them without a message
// between is killed. Batches are not taken: none of the protocols has them. See SPEC.md §4.11.
package rpcpeer
