// Package replay keeps a signed request from being carried out twice.
//
//	err := cache.Use(ctx, signatures, keyID, now, until)
//
// A Cache is bounded, for the full keys, for all others and for each of these, and safe for concurrent use. [Open] gives one that also knows what an
// earlier server of the home used. The contract is SPEC.md §6.5.
package replay
