// Package schema makes JSON Schemas of Go types, as package strict decodes them and
// as we write them.
//
//	params := schema.Of(reflect.TypeFor[api.SendParams](), schema.ReadClosed)
//	result := schema.Of(reflect.TypeFor[api.SendResult](), schema.Written)
//
// What a schema says of a member follows from its field: its type, the options of
// its json tag (what is left out where it is zero may be missing), and its tags
// wire, schema and enum. It does not say all: what depends on several members, and
// the texts that are allowed. Everything here is safe for concurrent use.
package schema
