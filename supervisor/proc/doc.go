// Package proc runs child processes over three pipes and sees to it that
// nothing of them stays.
//
//	g, err := proc.NewGuard(proc.GuardOptions{Dir: dir, Log: log}) // one, at the start
//	p, err := proc.Start(proc.Spec{Argv: argv, Env: env, Log: log, Guard: g})
//	go consume(p.Stdout())                        // io.EOF: gone and drained
//	_, err = p.Write(line)                        // an error: stop the process
//	exit := p.Stop(ctx, func() { p.Write(bye) })  // the ladder
//
// A process leads a group of its own. When it ends, the rest of its group is
// killed, before its id can be given to another. When we end, however that
// comes about, the kernel kills the process (Linux; elsewhere it has only the
// end of its stdin to go by). Its exit is known from the kernel, not from the
// end of its output, which others may hold open. Stderr is read at all times;
// what is kept and logged of it is bounded, and keys in it are replaced.
//
// A [Guard] reaches what has left the group, by a session of its own or parents
// that are gone: all that comes of a process bears its tag, comes to us when its
// parents die, and is killed when the process has ended. A second process of
// ours, the watchdog, does the same for all of them when we are killed, and the
// next server's guard when the watchdog was, too. [Guard.Mechanisms] says what of this
// holds on a machine. [Limits] bound a process with all that comes of it; what is
// exceeded is named by [Exit].
//
// A Process has two goroutines, three with limits, which end with it, and a Guard
// three, which Close joins. The package has one more, which never ends: it
// owns the thread that all processes are started from, because the kernel ties
// their lives to that thread. Every program that imports the package can be a
// watchdog, and is one before its main begins if it is started for that.
//
// Package proc knows nothing of frames. It refuses to start a process within
// limits that the system cannot keep. See SPEC §5.5.
package proc
