// Package auth makes, keeps and compares the façade's API keys.
//
// Server:
//
//	keys, err := auth.OpenKeyring(auth.KeyPath(home, port), records) // new key, file 0600
//	defer keys.Close()
//	if grant, valid, ok := keys.Check(presented); ok { … }
//	proof, ok := keys.Prove(id, nonce, address)
//
// Client:
//
//	key, source, err := auth.Discover(auth.Lookup{Flag: f, Env: e, Home: home, Port: port})
//	if key.Proves(nonce, address, proof) { … } // now it may be sent
//
// A [Key] never shows itself: every way of printing, logging or encoding one
// gives a redacted text; only [Key.Reveal] gives the key, and is called where
// it goes into a header or a file.
//
// A key file that others could read, or that is a link, is refused with a
// message that says how to mend it. Functions are safe for concurrent use. The
// contract is SPEC.md §6.5.
package auth
