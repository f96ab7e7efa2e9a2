package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported says why the kernel cannot confine programs; nil if it can. The
// error wraps [ErrUnsupported].
func Supported() error {
	switch v := landlockVersion(); {
	case v == 0:
		return fmt.Errorf("%w: it has no Landlock, or it is switched off (Linux 6.2 or newer has what is needed)", ErrUnsupported)
	case v < leastLandlock:
		return fmt.Errorf("%w: its Landlock is version %d, %d is needed (Linux 6.2)", ErrUnsupported, v, leastLandlock)
	case auditArch == 0:
		return fmt.Errorf("%w: there is no filter of system calls for this processor", ErrUnsupported)
	}
	return nil
}

// executable is our own, also if its file was replaced.
func executable() string { return "/proc/self/exe" }

// keptCapabilities are what root may still do in a confined program: work in
// directories of other users, and run, and end, programs of its own as another
// user. Not among them are CAP_FSETID, by which a file that is written to keeps
// its set-user-ID bit, and those that reach beyond files and own processes.
const keptCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID

// confine holds this thread, and what is started from it, to the rules, in the
// view that it has. The listener is that of filterCalls.
func (o startRequest) confine() (notes []string, listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, -1, fmt.Errorf("give up new privileges: %w", err)
	}
	for capability := range unix.CAP_LAST_CAP + 1 {
		if keptCapabilities&(1<<capability) == 0 {
			// Who may not drop it from the bound has no way to it either.
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0)
		}
	}
	if err := inheritNone(); err != nil {
		return nil, -1, fmt.Errorf("give up capabilities: %w", err)
	}
	if notes, err = o.landlock(); err != nil {
		return nil, -1, err
	}
	if err := dropAll(); err != nil {
		return nil, -1, fmt.Errorf("give up capabilities: %w", err)
	}
	listener, err = o.filterCalls()
	return notes, listener, err
}

// dropAll gives up the capabilities of this thread. Root keeps them: its program has
// none that this thread has not.
func dropAll() error {
	if os.Geteuid() == 0 {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// inheritNone empties this thread's inheritable and ambient sets of capabilities:
// what root starts has the inheritable ones, whatever the bound is.
func inheritNone() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	for i := range sets {
		sets[i].Inheritable = 0
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

// apply sets the limits of this process, for what it starts.
func (l Limits) apply() error {
	limits := []struct {
		resource int
		value    int64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_NOFILE, l.Files},
		{unix.RLIMIT_FSIZE, l.FileSize},
		{unix.RLIMIT_CPU, l.CPU},
		{unix.RLIMIT_DATA, l.Data},
	}
	if tasks := countTasks(); tasks > 0 && l.Processes > 0 {
		limits = append(limits, struct {
			resource int
			value    int64
		}{unix.RLIMIT_NPROC, tasks + l.Processes})
	}
	for _, limit := range limits {
		if limit.value < 0 {
			continue
		}
		var current unix.Rlimit
		if err := unix.Getrlimit(limit.resource, &current); err != nil {
			return fmt.Errorf("read a resource limit: %w", err)
		}
		value := min(uint64(limit.value), current.Max)
		if err := unix.Setrlimit(limit.resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("set a resource limit: %w", err)
		}
	}
	return nil
}

// countTasks is the number of processes and threads of the whole machine, 0 if
// it is not known.
func countTasks() int64 {
	data, _ := os.ReadFile("/proc/loadavg") // 0.00 0.00 0.00 RUNNING/ALL LAST
	fields := strings.Fields(string(data))
	if len(fields) < 4 {
		return 0
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, _ := strconv.ParseInt(all, 10, 64)
	return n
}

func programAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// keepDescriptors keeps what we have open, and may have been given by whoever
// started us, from the program.
func keepDescriptors() {
	if unix.CloseRange(orderFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	names, _ := os.ReadDir("/proc/self/fd") // Linux before 5.11
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd >= orderFD {
			unix.CloseOnExec(fd)
		}
	}
}

// replace makes to a copy of from.
func replace(from, to int) error { return unix.Dup3(from, to, 0) }
