// Package protocol is the line protocol between a parent process and a
// nexus-child: the commands a parent writes to the child's stdin, the events
// the child writes to its stdout, and the values that both carry.
//
// One frame is one JSON object on one line. Package frame splits and joins
// lines; this package gives them types:
//
//	cmd, err := protocol.DecodeCommand(line)        // child side
//	line, err := protocol.AppendEvent(nil, event)   // child side
//	line, err := protocol.AppendCommand(nil, cmd)   // parent side
//	event, err := protocol.Frame{Raw: line}.Decode()
//
// Decoding is strict about what is said (exact case, no duplicate members,
// valid UTF-8, types and required members checked) and lenient about what is
// added (unknown members are ignored), so that either side may grow.
//
// Commands and events are passed by value, never by pointer. All functions are
// safe for concurrent use; what they return shares no memory with the line it
// was read from, except that a [Frame] keeps its line. The package does no I/O
// and imports nothing of ours outside protocol. The contract is SPEC.md §3.
package protocol
