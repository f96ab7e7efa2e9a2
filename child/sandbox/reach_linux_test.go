package sandbox_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"nexus.internal/child/sandbox"
	"nexus.internal/protocol/proctree"
)

// reach tries to change the limits and the scheduling of a process, 0 for
// itself, and says what came of it.
func reach(pid int) string {
	var says []string
	try := func(name string, call uintptr, args ...uintptr) {
		var a [5]uintptr
		copy(a[:], args)
		_, _, errno := syscall.Syscall6(call, a[0], a[1], a[2], a[3], a[4], 0)
		if errno == 0 {
			says = append(says, name)
		}
	}
	p := uintptr(pid)
	var limit unix.Rlimit
	var mask unix.CPUSet
	_ = unix.SchedGetaffinity(0, &mask)
	param := int32(0)
	attr, _ := unix.SchedGetAttr(0, 0)
	above, _ := unix.Getpriority(unix.PRIO_PROCESS, 0) // as the system call says it: 20 less the priority
	try("prlimit", unix.SYS_PRLIMIT64, p, unix.RLIMIT_NOFILE, 0, uintptr(unsafe.Pointer(&limit)))
	try("affinity", unix.SYS_SCHED_SETAFFINITY, p, unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
	try("scheduler", unix.SYS_SCHED_SETSCHEDULER, p, unix.SCHED_NORMAL, uintptr(unsafe.Pointer(&param)))
	try("param", unix.SYS_SCHED_SETPARAM, p, uintptr(unsafe.Pointer(&param)))
	try("attr", unix.SYS_SCHED_SETATTR, p, uintptr(unsafe.Pointer(attr)), 0)
	try("priority", unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, p, uintptr(20-above))
	try("ioprio", unix.SYS_IOPRIO_SET, 1, p, 2<<13|4)
	return strings.Join(says, " ")
}

const reached = "prlimit affinity scheduler param attr priority ioprio"

// A confined program changes its own limits and scheduling, and nobody else's.
func TestReach(t *testing.T) {
	for name, rules := range confinements {
		want := reached + "\n" + reached + "\n"
		if name != "unconfined" {
			want = reached + "\n\n"
		}
		if text, _ := output(t, rules, "", role("reach")...); text != want {
			t.Errorf("%s: %q, want %q", name, text, want)
		}
	}
	for _, kind := range []string{"trusted", "sandboxed"} {
		for _, call := range deniedAll {
			if text, _ := output(t, confinements[kind], "", role("calls", fmt.Sprint(call))...); text != "false operation not permitted\n" {
				t.Errorf("%s: call %d: %q", kind, call, text)
			}
		}
	}
}

// retag tries to lower the limit by which a supervisor knows its processes, by
// either call, and to do what is allowed with limits.
func retag() string {
	var says []string
	try := func(name string, call uintptr, args ...uintptr) {
		var a [4]uintptr
		copy(a[:], args)
		if _, _, errno := syscall.Syscall6(call, a[0], a[1], a[2], a[3], 0, 0); errno == 0 {
			says = append(says, name)
		}
	}
	low, read := unix.Rlimit{Cur: 7, Max: 7}, unix.Rlimit{}
	at, to := uintptr(unsafe.Pointer(&low)), uintptr(unsafe.Pointer(&read))
	try("read", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_LOCKS, 0, to)
	try("queue", unix.SYS_SETRLIMIT, unix.RLIMIT_MSGQUEUE, at)
	try("queue", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_MSGQUEUE, at, to)
	try("prlimit", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_LOCKS, at, to)
	try("setrlimit", unix.SYS_SETRLIMIT, unix.RLIMIT_LOCKS, at)
	return strings.Join(says, " ")
}

// A confined program cannot take off the number that it is known by.
func TestTagStays(t *testing.T) {
	for name, rules := range confinements {
		want := "read queue queue\n"
		if name == "unconfined" {
			want = "read queue queue prlimit setrlimit\n"
		}
		if text, _ := output(t, rules, "", role("retag")...); text != want {
			t.Errorf("%s: %q, want %q", name, text, want)
		}
	}
}

var deniedAll = []int{
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PROCESS_MADVISE,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
}

// A program that only looks does not change what is said of files either.
func TestOnlyLooks(t *testing.T) {
	for _, script := range []string{"chmod 600 own", "chown $(id -u) own", "touch -h -d 2001-01-01 link"} {
		p := newPlace(t)
		if text, exit := output(t, p.trusted(), p.work, sh(script)...); exit.Code != 0 {
			t.Errorf("%s: exit %+v: %s", script, exit, text)
		}
		for _, rules := range []sandbox.Rules{p.trusted(), p.sandboxed()} {
			rules.ReadWrite, rules.ReadOnly = nil, append(rules.ReadOnly, p.work)
			text, exit := output(t, rules, p.work, sh(script)...)
			if exit.Code == 0 || !strings.Contains(text, "not permitted") {
				t.Errorf("%s: exit %+v: %s", script, exit, text)
			}
		}
	}
	p := newPlace(t)
	rules := p.trusted()
	rules.ReadWrite = nil
	for _, call := range []int{unix.SYS_SETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_SETXATTRAT, unix.SYS_FILE_SETATTR, unix.SYS_FCHMODAT2} {
		if text, _ := output(t, rules, "", role("calls", fmt.Sprint(call))...); text != "false operation not permitted\n" {
			t.Errorf("call %d: %q", call, text)
		}
	}
}

// A program that takes the open files from its reaper and from us, as only an
// unconfined one can, does not get away by it.
func TestStarved(t *testing.T) {
	_, stdin, says := supervised(t, role("starve", "escape")...)
	stdin.Close()
	if line, err := says.ReadString('\n'); line != "ended -1 killed\n" {
		t.Fatalf("%q, %v", line, err)
	}
	none(t, tag(t))
}

// starve sets the number of open files of the reaper and of its parent to none.
func starve() {
	reaper := os.Getppid()
	of, err := proctree.ReadStat(reaper)
	if err != nil {
		panic(err)
	}
	for _, pid := range []int{reaper, of.Parent} {
		var limit unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
			panic(err)
		}
		limit.Cur = 0
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			panic(err)
		}
	}
}
