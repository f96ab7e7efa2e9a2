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
// Serve owns every goroutine it starts: the reader of stdin, the worker that
// runs turns, the watcher of stdout and those that ask a provider for its
// models. All are joined before it returns, save those that are stuck in a
// read or write which nothing can interrupt; the process ends then.
//
// Commands are acted on, and Serve ends, also while nobody reads stdout.
//
// It refuses a second prompt while a turn runs, and it writes nothing but
// frames. See SPEC.md §3.
package child
