package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"nexus.internal/protocol"
)

// Which failure it is; callers use errors.Is.
var (
	ErrNotFound     = errors.New("agent not found")
	ErrExists       = errors.New("agent already exists")
	ErrQueueFull    = errors.New("the agent's queue is full")
	ErrBusy         = errors.New("the agent is busy") // when_busy "reject"
	ErrFailed       = errors.New("the agent has failed and is not started again")
	ErrStopped      = errors.New("the agent was stopped")
	ErrDraining     = errors.New("the server is shutting down")
	ErrAborted      = errors.New("the turn was cancelled")
	ErrTurnTimeout  = errors.New("the turn exceeded its time limit and was cancelled")
	ErrTurnConflict = errors.New("an earlier request has that request_id")
	ErrNoRequest    = errors.New("no such permission request waits for an answer")
	ErrSlow         = errors.New("subscriber fell too far behind")
	ErrUnrecorded   = errors.New("the request could not be recorded") // nothing was accepted
	// Of agents whose records several machines have. What became of a turn that ends with one of them the records say.
	ErrMoved      = errors.New("another machine has the agent now")
	ErrNoRoom     = errors.New("the machines that keep the agent's records have no room for more")
	ErrNoMajority = errors.New("a majority of the machines that keep the agent's records is not reached")
)

// MaxSaved bounds what several machines keep of one agent, in bytes: its session, images and records together.
const MaxSaved = 256 << 20

// StartError says that an incarnation did not become ready.
type StartError struct {
	Err error // what was waited for, or what the system said
	// Exit is how the process ended; nil if there never was one.
	Exit *Exit
}

func (e *StartError) Error() string {
	msg := e.Err.Error()
	if e.Exit != nil {
		msg += " (" + e.Exit.String() + ")"
		if e.Exit.Stderr != "" {
			msg += ": " + e.Exit.Stderr
		}
	}
	return msg
}
func (e *StartError) Unwrap() error { return e.Err }

// shortages are what the system says when it lacks something that others have
// taken, and may have again at any moment.
var shortages = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT,
}

// starved reports whether a launch came to no process because the server lacked
// something for it, so that nothing is known against the agent.
func starved(err error) bool {
	e, ok := errors.AsType[*StartError](err)
	return ok && e.Exit == nil && slices.ContainsFunc(shortages, func(s error) bool { return errors.Is(e, s) })
}

// SessionError says that a child could not open its session. It stands in a
// StartError, and so again and again until somebody does something about it.
type SessionError struct {
	Name   string
	InUse  bool   // by another process; else it cannot be read
	Reason string // what the child said
}

func (e *SessionError) Error() string {
	if e.InUse {
		return "another process has session " + e.Name + " open"
	}
	return "session " + e.Name + " cannot be read"
}

// DirError says that a working directory is gone, is none, or may not be entered, which is
// fs.ErrPermission. It says the same each time until somebody mends the directory, so the
// child is not started again. It stands in a StartError.
type DirError struct {
	Agent string // whose directory it is
	Dir   string
	Err   error
}

func (e *DirError) Error() string { return e.Err.Error() }
func (e *DirError) Unwrap() error { return e.Err }

// HandshakeError says that a program is no child of ours: its first frame is
// not ready, or not that of our version. It says the same each time, so it is
// not started again (SPEC §5.4). It stands in a StartError.
type HandshakeError struct{ Err error }

func (e *HandshakeError) Error() string { return e.Err.Error() }
func (e *HandshakeError) Unwrap() error { return e.Err }

// TurnLimitError is ErrTurnTimeout where the time was not the sender's but the
// agent's own, Limits.TurnSeconds.
type TurnLimitError struct{ TurnTime time.Duration }

// Limit is its name, as in "turn limit 60 s".
func (e *TurnLimitError) Limit() string { return fmt.Sprintf("turn limit %g s", e.TurnTime.Seconds()) }
func (e *TurnLimitError) Error() string { return ErrTurnTimeout.Error() + ": " + e.Limit() }
func (e *TurnLimitError) Unwrap() error { return ErrTurnTimeout }

// CrashError says that an incarnation ended while it owed an answer, or that a
// restart came to nothing.
type CrashError struct {
	Incarnation uint64 // 0 if it was the server that ended, and Cause says all
	Reason      Reason // "" as for Incarnation
	// Cause is what the supervisor saw or did: "process ended", "cancel not
	// honoured in 5s", "stdin not read in 10s", "ping not answered in 15s".
	Cause string
	// Exit is how the process ended; nil if there never was one.
	Exit *Exit
	// Session is why there is none, nil for any other reason.
	Session *SessionError
	// Dir is why no process was started, nil for any other reason.
	Dir *DirError
}

// Unwrap returns Session or Dir.
func (e *CrashError) Unwrap() error {
	switch {
	case e.Session != nil:
		return e.Session
	case e.Dir != nil:
		return e.Dir
	}
	return nil
}

func (e *CrashError) Error() string {
	switch {
	case e.Incarnation == 0:
		return e.Cause
	case e.Exit == nil:
		return fmt.Sprintf("child not started: %s (incarnation %d)", e.Cause, e.Incarnation)
	case e.Exit.Limit != "" && e.Reason != ReasonCancel: // whatever else was seen comes of it
		return fmt.Sprintf("child crashed: %s (incarnation %d)", e.Exit, e.Incarnation)
	}
	return fmt.Sprintf("child crashed: %s (incarnation %d, %s)", e.Cause, e.Incarnation, e.Exit)
}

// ChildError is a failure that the child itself reported for a command.
type ChildError struct {
	Command string
	Message string
	// Reason is the member of the response: protocol.StorageFull and the like; ""
	// for any other reason.
	Reason string
	// RetryAfter is how long the model's service wants to be left alone; 0 if it does
	// not say, or this was long ago.
	RetryAfter time.Duration
	// Holds is what the agent may do now where a change of it could not be saved and
	// what it takes away holds all the same; nil if nothing has changed.
	Holds *protocol.Permissions
	// Granted is what its owner granted the agent then; nil where Holds is.
	Granted *protocol.Permissions
	// Unreadable is why the answer could not be read; nil if it was read, and refuses
	// the command.
	Unreadable error
}

func (e *ChildError) Error() string { return e.Message }
func (e *ChildError) Unwrap() error { return e.Unreadable }

// unreadable says that the answer to a command is not as the protocol has it.
func unreadable(command string, err error) error {
	return &ChildError{Command: command, Message: "the child's answer cannot be read: " + err.Error(), Unreadable: err}
}

// UnstoppedError names the agents that would not stop in time.
type UnstoppedError struct {
	IDs   []string
	After time.Duration
}

func (e *UnstoppedError) Error() string {
	return fmt.Sprintf("agents not stopped after %s: %v", e.After, e.IDs)
}

// CommandError says that a command cannot be written: it is larger than a
// frame, or not UTF-8. The incarnation is not affected.
type CommandError struct {
	Command string
	Err     error
}

func (e *CommandError) Error() string { return fmt.Sprintf("send %s: %v", e.Command, e.Err) }
func (e *CommandError) Unwrap() error { return e.Err }

// Reason is what ended an incarnation that was not asked to end (SPEC §5.4).
type Reason string

// The reasons. A crash has exactly one.
const (
	ReasonExit     Reason = "exit"     // it exited, with whatever status
	ReasonSignal   Reason = "signal"   // a signal ended it that was not ours
	ReasonStart    Reason = "start"    // a restart did not become ready, or the server lacked something for it
	ReasonProtocol Reason = "protocol" // a restart was no child of our version: *HandshakeError
	ReasonPing     Reason = "ping"     // it did not answer a ping
	ReasonStdin    Reason = "stdin"    // it did not read its stdin
	ReasonOutput   Reason = "output"   // its stdout was closed, or not to be read as frames
	ReasonCancel   Reason = "cancel"   // it did not honour a cancel
	ReasonLimit    Reason = "limit"    // it went over one of its limits
)

// Reasons lists all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonExit, ReasonSignal, ReasonStart, ReasonProtocol, ReasonPing, ReasonStdin, ReasonOutput, ReasonCancel, ReasonLimit,
	}
}

// tally counts by reason. It is safe for concurrent use.
type tally struct{ counts [9]atomic.Uint64 }

// add counts one. A reason that is not listed is a broken invariant.
func (t *tally) add(r Reason) { t.counts[slices.Index(Reasons(), r)].Add(1) }

// snapshot has the reasons that were counted.
func (t *tally) snapshot() map[Reason]uint64 {
	counts := map[Reason]uint64{}
	for i, r := range Reasons() {
		if n := t.counts[i].Load(); n > 0 {
			counts[r] = n
		}
	}
	return counts
}
