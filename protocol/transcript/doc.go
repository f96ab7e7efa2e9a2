// Package transcript is the layout of a saved session: JSON Lines, a header
// first, then one record for each thing that happened. A session is only ever
// appended to; its present state is what [Parse] finds by replaying it from its last
// checkpoint.
//
//	state, good, err := transcript.Parse(file)                    // the first good bytes are sound
//	writer := state.Writer()                                      // for what is appended to the file
//	fix := state.Repair(time.Now())                               // closes a turn that was cut off
//	line, err := writer.Append(nil, transcript.Message{Message: m})  // newline excluded
//
// Functions are pure and safe for concurrent use; a State and a Writer belong to their
// caller. The package reads what it is given and does no other I/O. It refuses a session of
// a later version, what is no session, and one that is damaged between its last checkpoint
// and its last newline;
// records of a type it does not know are passed over, so that a later program
// may add some. See SPEC.md §4.6.
package transcript
