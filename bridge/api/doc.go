// Package api is the façade's table of methods: their names, where they are
// called, and the Go types of their parameters and results. The dispatcher,
// the Go client and the command line all read this one table.
//
//	p, err := api.Decode[api.SendParams](raw) // err is a *api.ParamError
//	m, ok := api.Find("send")
//
// A parameter of a pointer type may be missing or null. Parameters that the
// table does not have are refused by name.
//
// Everything here is immutable after the program's start and safe for
// concurrent use. The package does no I/O. The contract is SPEC.md §6.3.
package api
