// Package replay keeps a signed request from being carried out twice.
//
//	err := cache.Use(signatures, lasting, now, until)
//
// A Cache is bounded and safe for concurrent use. [Open] gives one that also knows what an
// earlier server of the home used. The contract is SPEC.md §6.5.
package replay
