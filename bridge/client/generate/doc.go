// Package generate holds what makes the methods of the clients in Python and TypeScript, and
// the types of parameters, results and events, from the tables of them (api.Methods,
// api.EventTypes): its test compares, and writes with UPDATE=1. The Go client needs no
// code of its own for a method: client.Do takes its row.
//
//	UPDATE=1 go test ./bridge/client/generate
package generate
