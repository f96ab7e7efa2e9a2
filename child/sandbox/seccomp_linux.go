//go:build linux && (amd64 || arm64 || riscv64)

package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where the kernel puts what a filter looks at (struct seccomp_data). Arguments
// have 64 bits; the lower halves, which is where flags and types are, come first
// on the processors that we know.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
	dataArg1   = 24
	dataArg2   = 32
)

// x32 marks the calls of a second, rarely used interface of amd64.
const x32 = 0x40000000

// namespaceFlags are the flags of clone that make namespaces.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// auditArch is how the kernel names this processor.
var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64,
}[runtime.GOARCH]

// calls are system calls that are denied alike.
type calls struct {
	errno   unix.Errno
	numbers []uint32
}

// deniedAll are denied to every confined program: the first reach into processes
// that are not the program's or list their namespaces, the second into keys of the
// kernel, which all processes of a user share. Of the last, one watches whole file
// systems, and one opens files by number, beneath whatever covers them.
var deniedAll = []calls{{unix.EPERM, []uint32{
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PROCESS_MADVISE, unix.SYS_LISTNS,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_FANOTIFY_INIT, unix.SYS_OPEN_BY_HANDLE_AT,
}}}

// secretMemory is what /proc does not count as the program's, so that it would be within no
// limit.
var secretMemory = calls{unix.ENOSYS, []uint32{unix.SYS_MEMFD_SECRET}}

// ring does what other calls do, unseen by a filter.
var ring = calls{unix.ENOSYS, []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}}

// pidFirst change the scheduling of the process or thread that their first
// argument names. 0 is the caller.
var pidFirst = []uint32{
	unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
}

// systemV make, or change, memory, semaphores and queues that all processes of an
// IPC namespace share, and that outlive the program.
var systemV = []calls{{unix.EPERM, []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}}}

// deniedLooking change what is said of a file beside its content. Landlock has
// no right for that: it would be possible wherever the program's user owns files.
var deniedLooking = []calls{{unix.EPERM, append([]uint32{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}, oldCalls[runtime.GOARCH]...)}}

// oldCalls are of the same kind, of paths, and not there on newer processors: chmod, chown,
// lchown, utime, utimes and futimesat.
var oldCalls = map[string][]uint32{"amd64": {90, 92, 94, 132, 235, 261}}

// setExtended is a request of ioctl, FS_IOC_FSSETXATTR.
const setExtended = 0x401c5820

// deniedOffline are the system calls that a program without network has no use
// for. A socket of any family is a way out, that of a local daemon above all;
// what has none of its own can neither connect nor listen. The rest are ways
// around this filter or into the kernel.
var deniedOffline = []calls{
	{unix.EACCES, []uint32{unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4}},
	{unix.ENOSYS, []uint32{unix.SYS_CLONE3}},
	{unix.EPERM, []uint32{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_FSPICK,
		unix.SYS_MOUNT_SETATTR, unix.SYS_BPF, unix.SYS_USERFAULTFD,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
		unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
		unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
	}},
}

// filterCalls denies to this thread, and to what is started from it, the system
// calls that the rules leave no use for. The listener is told of those that a
// decider is to decide on; it is -1 if there are none.
func (o startRequest) filterCalls() (listener int, err error) {
	program := callFilter(o.Rules, o.View, o.Outside != "")
	if !slices.ContainsFunc(program, asks) {
		_, err := loadFilter(program, 0)
		return -1, err
	}
	// A call that is being decided on is interrupted by nothing but its end.
	listener, err = loadFilter(program, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if !errors.Is(err, unix.EBUSY) {
		return listener, err
	}
	// A filter outside of ours has the one listener that there can be.
	for i, f := range program {
		if asks(f) {
			program[i] = refuse(unix.Errno(f.K & unix.SECCOMP_RET_DATA))
		}
	}
	_, err = loadFilter(program, 0)
	return -1, err
}

// loadFilter gives this thread a filter, and returns what the kernel answers.
func loadFilter(program []unix.SockFilter, flags uintptr) (answer int, err error) {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	n, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("filter system calls: %w", errno)
	}
	return int(n), nil
}

// The instructions that filters are made of.
const (
	load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	anyOf   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	and     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	ret     = unix.BPF_RET | unix.BPF_K
)

var allow = unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}

func refuse(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// ask has the reaper decide; where it cannot, the call is refused with errno.
func ask(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_USER_NOTIF | uint32(errno)}
}

func asks(f unix.SockFilter) bool {
	return f.Code == ret && f.K&^unix.SECCOMP_RET_DATA == unix.SECCOMP_RET_USER_NOTIF
}

// callFilter is the filter for a program with these rules, as a program for the
// kernel. own says that it has a network of its own. Between its parts the number of the call is what was loaded last.
func callFilter(r Rules, v view, own bool) []unix.SockFilter {
	program := []unix.SockFilter{
		// Calls in the manner of another processor have other numbers.
		{Code: load, K: dataArch},
		{Code: equal, K: auditArch, Jt: 1},
		refuse(unix.ENOSYS),
		{Code: load, K: dataNumber},
	}
	if runtime.GOARCH == "amd64" {
		program = append(program, unix.SockFilter{Code: atLeast, K: x32, Jf: 1}, refuse(unix.ENOSYS))
	}
	deny := func(list []calls) {
		for _, d := range list {
			for _, call := range d.numbers {
				program = append(program, unix.SockFilter{Code: equal, K: call, Jf: 1}, refuse(d.errno))
			}
		}
	}
	deny(deniedAll)
	deny([]calls{ring, unseen, secretMemory})
	program = append(program, noSetID()...)
	program = append(program, limits...)
	program = append(program, ofItselfAlone()...)
	program = append(program, noLeases...)
	if v == noView { // else the program has a namespace for them
		deny(systemV)
	}
	if !r.readsAll() {
		deny([]calls{readAttributes, readMounts, openProcess})
		program = append(program, noAccess...)
		program = append(program, watches...)
	}
	switch {
	case v == noView && len(r.ReadWrite) > 0:
		program = append(program, withoutView()...)
	case len(r.ReadWrite) == 0:
		deny(deniedLooking)
		program = append(program, noFlags...)
	}
	switch {
	case own:
		deny(deniedOffline[1:])
		program = append(program, gatedSockets...)
		program = append(program, offline...) // it decides on all calls, so nothing may follow
	case !r.Network:
		deny(deniedOffline)
		program = append(program, offline...)
	}
	return append(program, allow)
}

// limits is the part of the filter that lets a program change the limits of the
// caller alone, and not that of file locks: a supervisor tells by it whose a
// process is (SPEC §5.5), and anybody may lower it.
var limits = []unix.SockFilter{
	{Code: equal, K: unix.SYS_SETRLIMIT, Jf: 4},
	{Code: load, K: dataArg0},
	{Code: equal, K: unix.RLIMIT_LOCKS, Jf: 1},
	refuse(unix.EPERM),
	allow,
	{Code: equal, K: unix.SYS_PRLIMIT64, Jf: 11},
	{Code: load, K: dataArg0},
	{Code: equal, K: 0, Jt: 1},
	refuse(unix.EPERM),
	{Code: load, K: dataArg1},
	{Code: equal, K: unix.RLIMIT_LOCKS, Jf: 5},
	{Code: load, K: dataArg2}, // the new limit; null where it is only read
	{Code: equal, K: 0, Jf: 2},
	{Code: load, K: dataArg2 + 4},
	{Code: equal, K: 0, Jt: 1},
	refuse(unix.EPERM),
	allow,
}

// noLeases is the part of the filter that lets no program take a lease or a
// delegation of a file, which holds up whoever opens the file for up to 45 s, or a
// notification of a directory, which watches like inotify.
var noLeases = []unix.SockFilter{
	{Code: equal, K: unix.SYS_FCNTL, Jf: 6},
	{Code: load, K: dataArg1},
	{Code: equal, K: unix.F_SETLEASE, Jt: 2},
	{Code: equal, K: unix.F_NOTIFY, Jt: 1},
	{Code: equal, K: unix.F_SETDELEG, Jf: 1},
	refuse(unix.EPERM),
	allow,
}

// ofItselfAlone is the part of the filter that lets a program change the
// scheduling of nobody but the caller: others may be our own processes.
func ofItselfAlone() []unix.SockFilter {
	var part []unix.SockFilter
	for _, call := range pidFirst {
		part = append(part,
			unix.SockFilter{Code: equal, K: call, Jf: 4},
			unix.SockFilter{Code: load, K: dataArg0},
			unix.SockFilter{Code: equal, K: 0, Jt: 1},
			refuse(unix.EPERM),
			allow,
		)
	}
	// Of these the first argument is the kind of the second, and 0 of the kind
	// user is all that it has.
	const ioprioUser = 3
	for call, user := range map[uint32]uint32{unix.SYS_SETPRIORITY: unix.PRIO_USER, unix.SYS_IOPRIO_SET: ioprioUser} {
		part = append(part,
			unix.SockFilter{Code: equal, K: call, Jf: 6},
			unix.SockFilter{Code: load, K: dataArg0},
			unix.SockFilter{Code: equal, K: user, Jt: 2},
			unix.SockFilter{Code: load, K: dataArg1},
			unix.SockFilter{Code: equal, K: 0, Jt: 1},
			refuse(unix.EPERM),
			allow,
		)
	}
	return part
}

// gatedSockets is the part of the filter for a program with a network of its own: it has TCP
// and UDP there, and asks what interfaces there are. All other sockets, those of local daemons
// above all, and of virtual machines, would lead out of it.
var gatedSockets = []unix.SockFilter{
	{Code: equal, K: unix.SYS_SOCKET, Jf: 13},
	{Code: load, K: dataArg0},
	{Code: equal, K: unix.AF_NETLINK, Jf: 3},
	{Code: load, K: dataArg2},
	{Code: equal, K: unix.NETLINK_ROUTE, Jt: 7},
	refuse(unix.EACCES),
	{Code: equal, K: unix.AF_INET, Jt: 1},
	{Code: equal, K: unix.AF_INET6, Jf: 5},
	{Code: load, K: dataArg1},
	{Code: and, K: 0xf}, // SOCK_TYPE_MASK of the kernel
	{Code: equal, K: unix.SOCK_STREAM, Jt: 1},
	{Code: equal, K: unix.SOCK_DGRAM, Jf: 1},
	allow,
	refuse(unix.EACCES),
}

// offline is the part of the filter for a program without network that looks at
// arguments: it makes no namespaces, and no pairs of datagram sockets, which
// could send to others.
var offline = []unix.SockFilter{
	{Code: equal, K: unix.SYS_CLONE, Jf: 4},
	{Code: load, K: dataArg0},
	{Code: anyOf, K: namespaceFlags, Jf: 1},
	refuse(unix.EPERM),
	allow,
	{Code: equal, K: unix.SYS_SOCKETPAIR, Jf: 7},
	{Code: load, K: dataArg0},
	{Code: equal, K: unix.AF_UNIX, Jf: 4},
	{Code: load, K: dataArg1},
	{Code: and, K: 0xf}, // SOCK_TYPE_MASK of the kernel
	{Code: equal, K: unix.SOCK_STREAM, Jt: 2},
	{Code: equal, K: unix.SOCK_SEQPACKET, Jt: 1},
	refuse(unix.EACCES),
	allow,
}
