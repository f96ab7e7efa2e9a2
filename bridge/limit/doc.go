// Package limit bounds what a client with a key may do: how often it may ask
// (Rate), and that nothing which it has signed is done twice (Seen).
//
//	wait := rate.Take(keyID, items) // 0: go on
//	err := seen.Use(signatures, lasting, now, until)
//
// Both are safe for concurrent use and bounded. The contract is SPEC.md §6.5.
package limit
