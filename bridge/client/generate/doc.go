// Package generate holds what makes the methods of the three clients from the one
// table of them (api.Methods): its test compares, and writes with UPDATE=1.
//
//	UPDATE=1 go test ./bridge/client/generate
//
// It does not import package client, so that it can mend it.
package generate
