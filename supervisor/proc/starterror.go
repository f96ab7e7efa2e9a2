package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// StartError says why a process was not started. Nothing is left of it.
type StartError struct {
	Program string // Spec.Argv[0]; "" if there was none
	Why     string // in words
	Err     error  // what the system said; nil if it was not asked
	Dir     string // the working directory, if it is at fault; "" for anything else
}

func (e *StartError) Error() string {
	text := "start process: "
	if e.Program != "" {
		text = "start " + e.Program + ": "
	}
	text += e.Why
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *StartError) Unwrap() error { return e.Err }

// faults are what the system says when it starts no process, and what that
// means to who reads it.
var faults = []struct {
	err syscall.Errno
	why string
}{
	{syscall.ENOENT, "there is no such program"},
	{syscall.ENOTDIR, "there is no such program"},
	{syscall.EACCES, "it may not be executed"},
	{syscall.EPERM, "it may not be executed"},
	{syscall.ENOEXEC, "it is no program for this machine"},
	{syscall.ETXTBSY, "it is being written"},
	{syscall.E2BIG, "its arguments and environment are too large"},
	{syscall.EMFILE, "this process has too many open files (ulimit -n)"},
	{syscall.ENFILE, "the machine has too many open files"},
	{syscall.EAGAIN, "there are too many processes (ulimit -u)"},
	{syscall.ENOMEM, "there is no memory for it"},
	{syscall.ENOSPC, "there is no room for it"},
}

// startError names a failure to start a program.
func startError(s Spec, err error) *StartError {
	e := &StartError{Program: s.Argv[0], Why: "it cannot be started", Err: err}
	var errno syscall.Errno
	switch err := err.(type) { //nolint:errorlint // what else wraps it says what was attempted
	case *exec.Error:
		e.Why, e.Err = "it is not on the PATH", err.Err
		return e
	case *fs.PathError: // of the start: the name of the program once more
		errno, _ = errors.AsType[syscall.Errno](err)
	case *os.SyscallError: // of a pipe
		errno, _ = errors.AsType[syscall.Errno](err)
	}
	if errno == 0 {
		return e
	}
	e.Err = errno
	for _, f := range faults {
		if f.err == errno {
			e.Why = f.why
			break
		}
	}
	if errno == syscall.ENOENT {
		if _, err := os.Stat(s.Argv[0]); err == nil {
			e.Why = "its interpreter is missing"
		}
	}
	if errno == syscall.E2BIG {
		e.Why += fmt.Sprintf(" (%d bytes)", size(s.Argv)+size(s.Env))
	}
	return e
}

// dirError names what is wrong with a working directory.
func dirError(s Spec, err error) *StartError {
	e := &StartError{Program: s.Argv[0], Why: "its working directory " + s.Dir, Err: err, Dir: s.Dir}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		e.Err = path.Err
	}
	if errors.Is(err, fs.ErrPermission) {
		e.Why += " may not be entered"
	}
	return e
}

// size is what strings take in the memory of a new process, in bytes.
func size(list []string) int {
	n := 0
	for _, s := range list {
		n += len(s) + 1
	}
	return n
}
