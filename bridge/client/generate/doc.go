// Package generate holds what makes the methods of the three clients, and the types of
// parameters, results and events, from the tables of them (api.Methods,
// api.EventTypes): its test compares, and writes with UPDATE=1.
//
//	UPDATE=1 go test ./bridge/client/generate
//
// It does not import package client, so that it can mend it.
package generate
