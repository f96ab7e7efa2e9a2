// Package child is the worker's side of the child protocol: it reads commands
// from one stream, runs one turn at a time, and writes events to another.
//
//	err := child.Serve(ctx, os.Stdin, os.Stdout, child.Options{
//		Models: models,
//		Start:  selected,
//		ToolEnv: env,
//		Log:    log,
//	})
//
// The reader of stdin looks up each command in the table of handlers (handlers.go). Most
// are answered at once; a prompt, a follow-up or a compaction is a job of the turnQueue,
// which the worker takes (turns.go: the way of a prompt). What both share is the session:
// the conversation, the settings and the totals. The relay passes on what tools ask the
// parent, and background runs commands that may take long. All write by the emitter.
//
// Serve owns every goroutine it starts: the reader, the worker, the relay, the watcher of
// stdout and the background tasks. All are joined before it returns, save those that are
// stuck in a read or write which nothing can interrupt; the process ends then.
//
// Commands are acted on, and Serve ends, also while nobody reads stdout.
//
// It refuses a second prompt while a turn runs, and it writes nothing but
// frames. See SPEC.md §3.
package child
