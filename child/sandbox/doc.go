// Package sandbox starts the programs that an agent runs, confines them, and
// sees to it that nothing of them stays.
//
//	err := sandbox.Adopt() // once, in main
//	p, err := sandbox.Start(ctx, sandbox.Spec{Argv: argv, Dir: dir, Rules: rules})
//	defer p.Close()
//	output, err := io.ReadAll(p.Stdout()) // what it wrote, also on stderr
//	exit := p.Wait()                      // nothing of it runs any more
//
// Between us and the program stands a reaper: our own executable, started anew.
// Every program that imports the package can be one, and is one before its main
// begins if it is started for that.
// It has the program confined (Linux: Landlock for files, a mount namespace for
// what Landlock has no rights for or, without it, the reaper's own decision,
// seccomp for system calls, no new privileges) by our executable, started once
// more, which then becomes the program. It is the parent of whatever the program
// leaves behind, and kills all of it when the program ends, when it is told to,
// and when we are gone, by whatever means. A program cannot get away by a session
// or a process group of its own.
//
// A [Process] has two goroutines, three with [Spec.Stderr]; Wait joins them. All
// functions and methods are safe for concurrent use.
//
// What it refuses: to start a program that must be confined where the kernel
// cannot do it; a directory of the rules that has become a symbolic link; to
// pass on a variable that may hold a key. Elsewhere than on Linux there is no
// confinement, and a program is killed with its process group alone. The contract is
// SPEC.md §4.5.
package sandbox
