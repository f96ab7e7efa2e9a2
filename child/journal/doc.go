// Package journal keeps a conversation in a file as it happens.
//
//	j, state, err := journal.Open(journal.Options{Dir: dir, Name: "worker-1"})
//	defer j.Close()
//	err = j.Append(transcript.Message{Message: m})     // written, not yet synced
//	j.Partial(turnID, "some text", "")                 // written by now, or within 20 ms
//	err = j.Append(transcript.TurnEnd{…})
//	err = j.Sync()                                     // survives the machine
//	err = j.Commit(transcript.Settings{…})             // the same in one, or not at all
//
// A Journal is safe for concurrent use; one process at a time holds a file, by
// a lock that ends with the process. A nil *Journal is valid and saves nothing.
// It starts no goroutine but the timer of Partial, which Close joins.
//
// What could not be appended (a full disk) is kept in memory, up to 16 MiB, and
// goes before whatever is written next, so that the file never misses a record
// in its middle. What could not be committed is forgotten: the caller
// was told no. It refuses to touch a file that is no session, one that is
// damaged between its last checkpoint and its last newline, and a link; and to call saved what stands in
// a file that nobody finds any more. The layout is package transcript's. See
// SPEC.md §4.6.
package journal
