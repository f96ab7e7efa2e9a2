// Package requests keeps how the prompts of an agent ended, so that each has one
// outcome and a repeated request id gets it, after a kill of the server too.
//
//	l, err := requests.Open(path, requests.Options{Session: session})
//	l.Past(func(id string, digest [32]byte, ended *supervisor.Result) { … })
//	err = l.Accept(id, digest)   // before anybody is told that it was accepted
//	l.End(result)                // before anybody is told how it ended
//	found := l.Find(id)          // what the agent's own session says of it
//
// The file (0600) has JSON lines and is locked by one process at a time. It has
// the last 256 outcomes and the prompts that have none yet; texts up to 64 KiB
// each and 1 MiB in all, longer ones their beginning. It is appended to, and
// written anew, beside itself, once it holds twice of that or 4 MiB more.
//
// A record is in the file when Accept or End returns, and so survives the end of
// every process; only the file written anew is synced, so a machine that stops
// may take the latest records with it. A prompt that cannot be recorded is
// refused. Its record has room for its outcome, without the text, so that a
// full disk keeps no outcome from being recorded. Where that cannot be written
// either it is kept and goes before whatever is written next. A line that begins
// with a space says nothing. A line that is damaged ends what is read; the whole
// file is copied beside itself then, to NAME.damaged.
//
// What was accepted and has no outcome when a log is opened was cut off by the
// end of its server. Whether the agent finished it nevertheless is what Find
// reads in the session: an agent that has answered has saved its turn before.
//
// A Log is safe for concurrent use and starts no goroutine. It decides on no
// outcome. See SPEC §5.3.
package requests
