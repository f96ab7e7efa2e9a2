//go:build unix && !linux

package proc

import (
	"os"
	"os/exec"
	"syscall"
)

// spawn starts cmd in a group of its own. If we are killed, its stdin ends and
// nothing else tells it. There is no pidfd.
func spawn(cmd *exec.Cmd) (*os.File, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return nil, cmd.Start()
}

// awaitExit cannot know of an exit without reaping the process.
func (p *Process) awaitExit() (dead bool) { return false }
