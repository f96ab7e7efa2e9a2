// Package transcript is the layout of a saved session: JSON Lines, a header
// first, then one record for each thing that happened. A session is only ever
// appended to; its present state is what [Parse] finds by replaying it.
//
//	line, err := transcript.Append(nil, transcript.Message{Message: m})  // newline excluded
//	state, good, err := transcript.Parse(data)                           // data[:good] is sound
//	fix := state.Repair(time.Now())                                      // closes a turn that was cut off
//
// Functions are pure and safe for concurrent use; a State belongs to its
// caller. The package does no I/O. It refuses a session of a later version, what
// is no session, and one that is damaged anywhere before its last newline;
// records of a type it does not know are passed over, so that a later program
// may add some. See SPEC.md §4.6.
package transcript
