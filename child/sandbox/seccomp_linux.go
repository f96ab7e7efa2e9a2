//go:build linux && (amd64 || arm64 || riscv64)

package sandbox

import (
	"fmt"
	"runtime"
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

// denied are the system calls that a program without network has no use for,
// and what it gets for an answer. A socket of any family is a way out, that of a
// local daemon above all; what has none of its own can neither connect nor
// listen. The rest are ways around this filter or into the kernel.
var denied = []struct {
	errno unix.Errno
	calls []uint32
}{
	{unix.EACCES, []uint32{unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4}},
	{unix.ENOSYS, []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_CLONE3}},
	{unix.EPERM, []uint32{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_FSPICK,
		unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
		unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
		unix.SYS_QUOTACTL, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
	}},
}

// filterCalls denies all these calls to this thread and to what is started from it.
func filterCalls() error {
	program := callFilter()
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}

// callFilter is the filter as a program for the kernel.
func callFilter() []unix.SockFilter {
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		anyOf   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		and     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
	)
	allow := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}
	refuse := func(errno unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
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
	for _, d := range denied {
		for _, call := range d.calls {
			program = append(program, unix.SockFilter{Code: equal, K: call, Jf: 1}, refuse(d.errno))
		}
	}
	return append(program,
		unix.SockFilter{Code: equal, K: unix.SYS_CLONE, Jf: 4},
		unix.SockFilter{Code: load, K: dataArg0},
		unix.SockFilter{Code: anyOf, K: namespaceFlags, Jf: 1},
		refuse(unix.EPERM),
		allow,
		// A pair of datagram sockets could send to others.
		unix.SockFilter{Code: equal, K: unix.SYS_SOCKETPAIR, Jf: 7},
		unix.SockFilter{Code: load, K: dataArg0},
		unix.SockFilter{Code: equal, K: unix.AF_UNIX, Jf: 4},
		unix.SockFilter{Code: load, K: dataArg1},
		unix.SockFilter{Code: and, K: 0xf}, // SOCK_TYPE_MASK of the kernel
		unix.SockFilter{Code: equal, K: unix.SOCK_STREAM, Jt: 2},
		unix.SockFilter{Code: equal, K: unix.SOCK_SEQPACKET, Jt: 1},
		refuse(unix.EACCES),
		allow,
	)
}
