// Package sessionlog logs the sessions of a server's agents in a directory, beside the sessions
// themselves: what was said, called and answered outlasts an agent that is destroyed. There is
// a database (SQLite, logs.db) with an index of all words, and for each session a folder with
// session.md, for people, and, if asked for, events.jsonl, every event as the agent wrote it. In session.md
// what others said is quoted, so that none of it looks like another entry.
//
//	archive, err := sessionlog.Create(dir)            // the server, alone
//	recorder, err := sessionlog.NewRecorder(archive, sessionlog.Options{…})
//	go recorder.Run(ctx)                              // until the agents have ended
//
//	archive, err := sessionlog.Open(dir)              // anybody, meanwhile too
//	found, err := archive.Search(ctx, []string{"disk", "full"}, sessionlog.Filter{}, 50)
//
// A [Recorder] reads what an agent's process has saved of its session, and the agent's events by their
// numbers. How far it has read is in the database, in the same transaction as what it read. So it
// logs nothing twice, and goes on where it was after a kill, a full disk, or as it fell behind. What is
// not kept any more by then is a gap that the log names. Nobody waits for a Recorder, and it
// keeps nothing in memory but one batch of each agent.
//
// Keys that are recognized as such are replaced, as in the server's log. An Archive is safe for concurrent use, also by
// several processes. It refuses a directory that is a symbolic link, or of another user, or that others may write to.
// The contract is SPEC §6.13.
package sessionlog
