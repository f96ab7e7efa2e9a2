package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// attacker does what nobody should do to a server.
type attacker struct {
	server  *server
	history *History
	plan    Plan
}

// stepTimeout is how long the attacker waits for what must happen.
const stepTimeout = 20 * time.Second

// attack does the steps of the plan for so long, and what of the required attacks
// is missing then; what has begun is finished, unless whole ends. The error is one
// of the attacker's own: a server that does not come back, for one.
func (a *attacker) attack(ctx, whole context.Context, began time.Time, long time.Duration) error {
	return a.plan.runSteps(ctx, whole, began, long, func(ctx context.Context, step Step) (outcome, error) {
		err := a.do(ctx, step)
		r := Record{Kind: Did, Action: step.Do, Agent: a.plan.Name(step.Agent)}
		came := made
		if e, ok := errors.AsType[*skippedError](err); ok {
			came, r.Kind, r.Text = missed, Skipped, e.why
			if e.never {
				came = impossible
			}
		} else if err != nil {
			return made, fmt.Errorf("%s: %w", step.Do, err)
		}
		a.history.Add(r)
		return came, nil
	})
}

// skippedError says why a step could not be done.
type skippedError struct {
	why   string
	never bool // it is never possible here
}

func (e *skippedError) Error() string { return e.why }

func (a *attacker) do(ctx context.Context, step Step) error {
	switch step.Do {
	case Kill, Stop:
		return a.signal(ctx, step)
	case FillDisk:
		return a.fillDisk(ctx, step.For)
	case KillServer:
		if err := a.server.kill(); err != nil {
			return err
		}
		a.server.waitNoneLeft(ctx, a.history, "processes after SIGKILL of the server", func() []string {
			return a.server.processes()
		})
		starting, cancel := context.WithTimeout(ctx, 3*stepTimeout)
		defer cancel()
		a.server.restart(starting)
		return nil
	default:
		return fmt.Errorf("%s is no attack", step.Do)
	}
}

// signal kills or stops the process of an agent, or of the next target that
// has one.
func (a *attacker) signal(ctx context.Context, step Step) error {
	pids, err := a.server.pids(ctx)
	if err != nil && ctx.Err() == nil {
		err = &skippedError{why: err.Error()}
	}
	if err != nil {
		return err
	}
	targets := a.plan.Agents - a.plan.Control
	for i := range targets {
		pid, ok := pids[a.plan.Name(a.plan.Control+(step.Agent-a.plan.Control+i)%targets)]
		if !ok {
			continue
		}
		// The handle is the process's own: once its parent is checked, the
		// number cannot be another's.
		process, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		defer process.Release() //nolint:errcheck // it frees a descriptor
		if s, err := proctree.ReadStat(pid); err != nil || s.Parent != a.server.pid() {
			return &skippedError{why: fmt.Sprintf("process %d is no child of the server", pid)}
		}
		if step.Do == Kill {
			return skipIfEnded(process.Signal(syscall.SIGKILL))
		}
		if err := skipIfEnded(process.Signal(syscall.SIGSTOP)); err != nil {
			return err
		}
		pause(ctx, step.For)
		return skipIfEnded(process.Signal(syscall.SIGCONT))
	}
	return &skippedError{why: "none has a process"}
}

func skipIfEnded(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return &skippedError{why: "it has ended meanwhile"}
	}
	return err
}

// fillDisk leaves no byte on the disk of the home, for a while.
func (a *attacker) fillDisk(ctx context.Context, long time.Duration) (err error) {
	if a.server.o.Disk == "" {
		return &skippedError{why: a.server.o.NoDisk, never: true}
	}
	var free unix.Statfs_t
	if err := unix.Statfs(a.server.o.Disk, &free); err != nil {
		return err
	}
	if n := free.Bavail * uint64(free.Bsize); n > maxFill {
		return &skippedError{why: fmt.Sprintf("%d bytes are free, too many to fill", n), never: true}
	}
	path := filepath.Join(a.server.o.Disk, "ballast")
	defer func() {
		err = errors.Join(err, os.Remove(path), waitFreed(ctx, path))
		a.history.Add(Record{Kind: DiskFree})
	}()
	a.history.Add(Record{Kind: DiskFull})
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for size := 1 << 20; size > 0; { // whole pages first, then what is left
		if _, err = file.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	pause(ctx, long)
	return nil
}

// waitFreed waits until a file can be written at path again: the kernel may take its
// time to give back what a removed one had.
func waitFreed(ctx context.Context, path string) error {
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		err := errors.Join(os.WriteFile(path, make([]byte, 1<<20), 0o600), os.Remove(path))
		if !errors.Is(err, syscall.ENOSPC) || !pause(limited, 10*time.Millisecond) {
			return err
		}
	}
}
