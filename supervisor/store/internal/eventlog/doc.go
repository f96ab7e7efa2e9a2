// Package eventlog keeps the numbered events of agents on disk, so that a
// subscriber finds what is gone from memory, after a restart of the server too.
//
//	writer := eventlog.New(eventlog.Options{Log: log})   // one for a server
//	defer writer.Close()
//	l, err := writer.Open(filepath.Join(dir, "alice.events"))
//	next := l.Last() + 1                                 // numbers go on
//	l.Append(supervisor.Event{Seq: next, Type: typ, Data: data})
//	for event, err := range l.Read(after) { … }
//
// A log is a directory (0700) of at most 4 segments (0600) of 4 MiB, each a
// file of JSON lines that is named for the first number it may hold. When a new
// one is begun the oldest goes. Append never waits for the disk: one goroutine
// writes for all logs, at once when there was nothing to do and every 10 ms
// while there is. Up to 4 MiB of an agent's events wait for it, and 64 MiB of all;
// beyond that the log loses the oldest of them, never the agent its time. What is
// lost leaves a hole in the numbers, which is how a reader knows.
//
// Nothing is synced: the log survives the end of every process, not that of the
// machine. After a kill the last events may be missing (those of the last 10
// ms), and so may be the end of a line, which the next Open cuts off. A number
// is not given twice all the same: the log notes a number far ahead, and after a
// kill Last is that one. Only a server that is killed while more than 500,000
// numbers could not be noted forgets some.
//
// A write that fails (a full disk, a directory that is not ours any more) is
// logged once and tried again with later events; up to 256 KiB wait meanwhile.
// An idle log has no buffer, descriptor or timer. All methods are safe for
// concurrent use; Writer.Close joins the goroutine. One process at a time may
// have a log open, which the caller sees to. It does not look into events. See
// SPEC §5.6.
package eventlog
