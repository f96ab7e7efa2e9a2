// Package owned tells whether a home of nexus is its user's own: whoever else may
// change what nexus trusts there could run programs as that user.
//
//	if err := owned.Home(home); err != nil { … } // says what to do
//
// All functions are safe for concurrent use. The contract is SPEC.md §2.1.
package owned
