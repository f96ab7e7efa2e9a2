// Package limit bounds how often a client with a key may ask.
//
//	wait := rate.Take(keyID, items) // 0: go on
//
// A Rate is bounded and safe for concurrent use. The contract is SPEC.md §6.5.
package limit
