// Package openrpc describes the façade's methods to programs and to people, by
// the one table of them: an OpenRPC 1.3 document and a page of HTML.
//
//	document, err := openrpc.Document("1.0.0", "http://127.0.0.1:8765")
//	page := openrpc.Page("1.0.0", "http://127.0.0.1:8765")
//
// What the document says of parameters is what the server's decoder does: both
// read the types of package api. bridge/METHODS.md says the same for readers.
//
// The functions are safe for concurrent use. The package does no I/O.
package openrpc
