//go:build unix

package proc

import (
	"os"
	"syscall"
)

const (
	sigTerm = syscall.SIGTERM
	sigCont = syscall.SIGCONT
	sigKill = syscall.SIGKILL
)

// signal signals the process's group, unless its id may have passed to others.
func (p *Process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		syscall.Kill(-p.cmd.Process.Pid, sig) //nolint:errcheck // an empty group is what we want
	}
}

func exitOf(state *os.ProcessState) Exit {
	if state == nil {
		return Exit{Code: -1}
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal().String()}
	}
	return Exit{Code: state.ExitCode()}
}
