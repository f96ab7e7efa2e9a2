// Package proc runs one child process over three pipes and sees to it that
// nothing of it stays.
//
//	p, err := proc.Start(proc.Spec{Argv: argv, Env: env, Log: log})
//	go consume(p.Stdout())                        // io.EOF: gone and drained
//	_, err = p.Write(line)                        // an error: stop the process
//	exit := p.Stop(ctx, func() { p.Write(bye) })  // the ladder
//
// The process leads a group of its own. When it ends, the rest of its group is
// killed, before its id can be given to another. When we end, however that
// comes about, the kernel kills the process (Linux; elsewhere it has only the
// end of its stdin to go by). Its exit is known from the kernel, not from the
// end of its output, which others may hold open. Stderr is read at all times;
// what is kept and logged of it is bounded, and keys in it are replaced.
//
// A Process has two goroutines, which end with it; the package has one more,
// which never ends: it owns the thread that all processes are started from,
// because the kernel ties their lives to that thread. Package proc knows
// nothing of frames. See SPEC §5.5.
package proc
