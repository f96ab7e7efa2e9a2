//go:build !linux

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"go.uber.org/zap"
)

type guardSystem struct{}

// NewGuard makes a guard that has no means: here a process ends with its group
// alone, and when we are killed, the end of its stdin must do.
func NewGuard(o GuardOptions) (*Guard, error) {
	g := &Guard{log: o.Log, mechanisms: Mechanisms{Reasons: []string{"there are none on this system"}}}
	if g.log == nil {
		g.log = zap.NewNop()
	}
	return g, nil
}

// Close gives up the guard.
func (g *Guard) Close() error { return nil }

// tree is a process with all that comes of it, whose group alone we know.
type tree struct{}

// startTree starts cmd in a group of its own. If we are killed, its stdin ends and
// nothing else tells it. There is no pidfd.
func startTree(cmd *exec.Cmd, _ *Guard, l Limits) (*tree, *os.File, error) {
	l.OutputBytesPerSecond, l.TurnSeconds = 0, 0 // those are kept without the system
	if l != (Limits{}) {
		return nil, nil, fmt.Errorf("limits cannot be kept on this system: %w", errors.ErrUnsupported)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &tree{}, nil, cmd.Start()
}

func (t *tree) reap(cmd *exec.Cmd, _ bool) {
	cmd.Wait() //nolint:errcheck // ProcessState says it all
}

func (t *tree) clear() ([]int, error) { return nil, nil }

func (t *tree) breached() string { return "" }

func (t *tree) usage(bool) usage { return usage{} }

func (t *tree) spent(process time.Duration) time.Duration { return process }

type lastUsage struct{}

func (*lastUsage) of(int) Usage { return Usage{} }

func (p *Process) whenDead() { go p.wait() }

// awaitExit cannot know of an exit without reaping the process.
func (p *Process) awaitExit() (dead bool) { return false }
