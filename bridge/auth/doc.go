// Package auth makes, keeps and compares the façade's API key.
//
// Server:
//
//	key, err := auth.Create(auth.KeyPath(home, port)) // new key, file 0600
//	defer auth.Remove(auth.KeyPath(home, port), key)
//	if key.Matches(presented) { … }
//
// Client:
//
//	key, source, err := auth.Discover(auth.Lookup{Flag: f, Env: e, Home: home, Port: port})
//
// A [Key] never shows itself: every way of printing, logging or encoding one
// gives a redacted text; only [Key.Reveal] gives the key, and is called where
// it goes into a header or a file.
//
// A key file that others could read, or that is a link, is refused with a
// message that says how to mend it. Functions are safe for concurrent use. The
// contract is SPEC.md §6.5.
package auth
