// Package segmentlog keeps what is written of one agent in one log on disk: its
// numbered events, an account, and lines that it cannot interpret.
//
//	writer := segmentlog.New(segmentlog.Options{Log: log})  // one for a server
//	defer writer.Close()                                    // after its logs
//	l, lines, err := writer.Open(filepath.Join(dir, "alice.records"), snapshot)
//	l.Append(supervisor.Event{Seq: l.Last() + 1, Type: typ, Data: data})
//	err = l.Write(line, rooms)
//	for event, err := range l.Read(after) { … }
//
// A log is a directory (0700) of at most 4 segments (0600) of 4 MiB, files of
// JSON lines. A segment begins with a header and a snapshot: the account, and the
// lines that the caller makes of those before. So the last segment alone says all but
// events, and when a new one is begun the oldest goes. It is begun beside its place
// and renamed when it is whole, as is a log that is made; it is synced then if there is an
// account. The last segment is locked by one process at a time.
//
// Append never waits for the disk: one goroutine writes the events of all logs, at
// once when there was nothing to do and every 10 ms while there is. Up to 4 MiB of an
// agent's events wait for it, and 64 MiB of all; beyond that the log loses the oldest
// of them, never the agent its time. What is lost leaves a hole in the numbers, which
// is how a reader knows. Write and SetAccount are in the file when they return, with
// the events that waited, by one write; SetAccount is on the disk if asked for.
//
// After a kill the last events may be missing (those of the last 10 ms), and so may
// be the end of a line, which the next Open cuts off. A number is not given twice all
// the same: the header has a number far ahead, and after a kill Last is that one. Only
// a server that is killed while more than 500,000 numbers could not be noted forgets
// some. A line that is damaged is passed over, and the segment copied to NAME.damaged;
// where the account may be lost with it, the log is not opened.
//
// A full disk takes no line, but the header, and what WriteRoom writes: lines of spaces
// that an earlier Write left. A write that fails is logged once and tried again with
// later events; up to 256 KiB of these wait meanwhile. An idle log has no buffer and no
// timer, and the descriptor that has its lock. All methods are safe for concurrent
// use; Writer.Close joins the goroutine. It does not look into events. See SPEC §5.3
// and §5.6.
package segmentlog
