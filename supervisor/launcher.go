package supervisor

import (
	"context"
	"fmt"
	"time"

	"nexus.internal/protocol"
)

// Launcher starts one incarnation of an agent. It is the seam between the
// supervisor and the world: package supervisor/stdio starts real processes,
// package supervisortest plays scripts in memory.
type Launcher interface {
	// Launch returns once the child is ready and speaks our version of the
	// protocol. ctx bounds the start alone. again says that this agent ran
	// before, so that Spec.Resume applies. On failure nothing is left running
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

// Usage is what one process takes; zero where the system does not tell.
type Usage struct {
	// CPU is its time on the processors, with that of what it started and waited
	// for.
	CPU time.Duration
	// MemoryBytes are what it has in memory, shared pages included; 0 once it is
	// gone. What it started is not in it.
	MemoryBytes int64
}

// Exit is how an incarnation ended.
type Exit struct {
	// Code is the exit status; -1 if a signal ended it.
	Code int
	// Signal is the signal's name as in "killed"; "" if none ended it.
	Signal string
	// Stderr is the tail of what it wrote to stderr since the last turn began, or
	// since it started, at most 4 KiB, redacted.
	Stderr string
	// Limit is that of Spec.Limits which ended it, as in "memory limit 512 MiB"; or
	// "turn limit 60 s" where it did not end a turn of that length. "" if none did.
	Limit string
}

// String is "exit status 3", "signal: killed" or "killed: memory limit 512 MiB".
func (e Exit) String() string {
	if e.Limit != "" {
		return "killed: " + e.Limit
	}
	if e.Signal != "" {
		return "signal: " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Code)
}
