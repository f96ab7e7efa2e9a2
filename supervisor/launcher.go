package supervisor

import (
	"context"

	"nexus.internal/protocol"
	"nexus.internal/protocol/proctree"
)

// Launcher starts one incarnation of an agent. It is the seam between the
// supervisor and the world: package supervisor/stdio starts real processes,
// package supervisortest plays scripts in memory.
type Launcher interface {
	// Launch returns once the child is ready and speaks our version of the
	// protocol. ctx bounds the start alone. again says that this agent ran
	// before: it goes on with what it saved, and what the Spec has for the first process
	// alone does not apply. On failure nothing is left running
	// and the error carries what is known of the exit (*StartError), and says
	// so if another attempt is of no use (*HandshakeError).
	Launch(ctx context.Context, s Spec, again bool) (Conn, error)
}

// Conn is one live incarnation.
type Conn interface {
	// Ready is the child's first frame.
	Ready() protocol.Ready
	// PID is the process id; 0 if there is no process.
	PID() int
	// Send writes one command. It is safe for concurrent use and bounded by a
	// write deadline. A *CommandError means that the command cannot be written
	// and harms nothing; any other error that the incarnation is lost, and one
	// that wraps os.ErrDeadlineExceeded that it did not read.
	Send(c protocol.Command) error
	// Recv returns the next frame. One goroutine calls it. Raw is valid until
	// the next call. io.EOF means that the process is gone and drained; any
	// other error why the incarnation is to be given up: its output
	// cannot be read.
	Recv() (protocol.Frame, error)
	// Stop ends the incarnation by the ladder of SPEC §5.5 and returns when
	// nothing of it is left. If ctx ends, the ladder goes on with KILL at
	// once. It is idempotent and safe for concurrent use.
	Stop(ctx context.Context) Exit
	// Done is closed once the process is gone; Exit then says how.
	Done() <-chan struct{}
	Exit() Exit
	// Usage is what the process takes now, or took when it is gone. It may be called
	// at any time.
	Usage() Usage
}

// Usage is what one process takes, and Exit how an incarnation ended: Exit.Stderr is what it
// wrote since the last turn began, or since it started.
type (
	Usage = proctree.Usage
	Exit  = proctree.Exit
)
