//go:build !linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported says why the kernel cannot confine programs; nil if it can. The
// error wraps [ErrUnsupported].
func Supported() error {
	return fmt.Errorf("%w: that takes Linux", ErrUnsupported)
}

// Adopt makes this process the parent of what a killed reaper leaves behind.
// This system knows no such thing.
func Adopt() error { return nil }

func reapOrphans() {}

func killOrphans(map[int]bool) {}

func executable() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// view stands for the namespaces that a program has elsewhere.
type view int

// startConfined is not called: programs are not confined here.
func (o startRequest) startConfined() (*descendants, startReport) {
	return nil, startReport{Error: ErrUnsupported.Error()}
}

// Loopback stands for a network that programs share elsewhere.
type Loopback struct{}

// Renew does nothing here.
func (*Loopback) Renew() {}

// Close does nothing here.
func (*Loopback) Close() {}

func (*Loopback) enter(needed bool) (*spawner, error) {
	if needed {
		return nil, ErrUnsupported
	}
	return nil, nil
}

// spawner stands for a process that starts programs in their network.
type spawner struct{}

func (*spawner) spawn(string, []*os.File) (*os.Process, error) { return nil, ErrUnsupported }

func (*spawner) gate() (*os.File, string, error) { return nil, "", ErrUnsupported }

func (way) lost() bool { return false }

func (way) least(first view) view { return first }

func ownNetwork() string { return "" }

func askForContinue() {}

func spawn() int { return 2 }

func launchSpawner() int { return 2 }

func become() int { return 2 }

// keepRunning has nothing to do: a reaper that is stopped is killed when its time
// is over.
func keepRunning(int, *atomic.Bool) {}

// apply sets the limits of this process, for what it starts. That of processes
// is left alone, as their number is not known.
func (l Limits) apply() error {
	for _, limit := range []struct {
		resource int
		value    int64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, l.FileSize}, {unix.RLIMIT_CPU, l.CPU}} {
		if limit.value < 0 {
			continue
		}
		var both unix.Rlimit
		setLimit(&both.Cur, limit.value)
		setLimit(&both.Max, limit.value)
		if err := unix.Setrlimit(limit.resource, &both); err != nil {
			return fmt.Errorf("set a resource limit: %w", err)
		}
	}
	return nil
}

// setLimit sets one field of a Rlimit, which is signed on FreeBSD alone.
func setLimit[T int64 | uint64](field *T, value int64) { *field = T(value) }

func reaperAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func programAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// keepDescriptors keeps our own from the program. There is no saying what else
// we were given.
func keepDescriptors() {
	unix.CloseOnExec(orderFD)
	unix.CloseOnExec(reportFD)
}

// terminal stands for what programs have elsewhere.
type terminal struct{}

func newTerminal() (*terminal, error) { return nil, errors.New("that takes Linux") }

func (*terminal) open() (*os.File, error) { return nil, errors.New("that takes Linux") }

func (*terminal) pass() {}

func (*terminal) drain() {}

// replace makes to a copy of from.
func replace(from, to int) error { return unix.Dup2(from, to) }

// descendants are the program of a reaper with its process group.
type descendants struct {
	program int

	mu     sync.Mutex // guards reaped
	reaped bool       // the id may be another's
}

// end kills the program and its group; wait sees it through.
func (d *descendants) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.reaped {
		_ = unix.Kill(-d.program, unix.SIGKILL) // it is a zombie at worst
	}
}

// wait tells when the program has exited, and returns with the rest of its
// group killed.
func (d *descendants) wait(exited func(syscall.WaitStatus)) {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(d.program, &status, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	_ = unix.Kill(-d.program, unix.SIGKILL) // a group keeps its id while it has members
	d.mu.Lock()
	d.reaped = true
	d.mu.Unlock()
	exited(status)
}
