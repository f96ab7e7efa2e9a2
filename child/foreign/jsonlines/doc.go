// Package jsonlines speaks JSON objects, one a line, with a program that has no JSON-RPC: what a line
// means, the handler knows.
//
//	peer := jsonlines.Start(program, handler, log)
//	defer peer.Close()
//	answer, err := peer.Call(ctx, "7", "set_model", command{ID: "7", …})
//
// One goroutine reads and calls the handler, so that the order is that of the program, and the program
// goes no faster than its lines are taken. What has to wait for somebody runs beside it, at most 64
// at once; Close joins all of that. All methods are safe for concurrent use.
//
// A line that is no object is passed over. A program that writes 64 of them without an object
// between is killed. See SPEC.md §4.11.
package jsonlines
