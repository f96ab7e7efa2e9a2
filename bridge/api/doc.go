// Package api is the façade's table of methods: their names, where they are
// called, who may call them, their errors, and the Go types of their parameters and results.
// The server, the clients, the reference and the command line all read this one table.
//
//	p, err := api.Decode[api.SendParams](raw) // err is a *api.ParamError
//	m, ok := api.Find("send")
//
// A parameter of a pointer type, which has omitzero, may be missing or null. Parameters that the table does not
// have are refused by name. The tags of a parameter bound it, for the server, the schema and
// the reference alike: enum lists the values of a string; min and max bound a number, or the
// bytes of a string (">" before min excludes it); unit goes behind a number in an error;
// default is what a missing one means; audit says whether the audit log has it ([Audited]).
// Its comment is its description for clients: it names
// no Go identifier.
//
// Everything here is immutable after the program's start and safe for concurrent use. The
// package does no I/O. The contract is SPEC.md §6.3 and bridge/METHODS.md.
package api
