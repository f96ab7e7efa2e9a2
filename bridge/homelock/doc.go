// Package homelock is the lock by which a server holds its home, HOME/run/lock, and by
// which others find that server.
//
//	err := homelock.Take(file)         // the server, for as long as its process lives
//	err = homelock.Record(file, port)
//	server, err := homelock.Find(home) // a client: server.Port, if server.Runs
//	err = homelock.Wait(file)          // until nobody holds it
//
// Find takes no lock, so that it never keeps a server from its home. The file stays
// where it is when a server ends, and what it says is worth something only as long as
// it is locked. All functions are safe for concurrent use. The contract is SPEC.md §2.1.
package homelock
