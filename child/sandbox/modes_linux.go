//go:build linux && (amd64 || arm64 || riscv64)

package sandbox

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// setID are the bits of a mode by which a file gives its owner's, or its group's,
// rights to whoever runs it.
const setID = unix.S_ISUID | unix.S_ISGID

// modeCalls are the calls that set a mode, with the place of that argument (0 is
// the first). Those that make a directory heed none of the bits of setID.
var modeCalls = append([]modeCall{
	{unix.SYS_FCHMOD, 1, -1},
	{unix.SYS_FCHMODAT, 2, -1},
	{unix.SYS_FCHMODAT2, 2, -1},
	{unix.SYS_MKNODAT, 2, -1},
	{unix.SYS_OPENAT, 3, 2},
}, map[string][]modeCall{
	"amd64": {{90, 1, -1}, {133, 1, -1}, {85, 1, -1}, {2, 2, 1}}, // chmod, mknod, creat and open
}[runtime.GOARCH]...)

// modeCall is a call that sets a mode: always, or where the flags make a file.
type modeCall struct {
	number uint32
	mode   int
	flags  int // the place of the flags; -1 for none
}

// unseen makes files in a way that a filter cannot see: the mode stands in
// memory.
var unseen = calls{unix.ENOSYS, []uint32{unix.SYS_OPENAT2}}

// argument is where the kernel puts the lower half of an argument.
func argument(n int) uint32 { return dataArg0 + 8*uint32(n) }

// noSetID is the part of the filter that lets no program set a bit of setID.
func noSetID() []unix.SockFilter {
	var part []unix.SockFilter
	for _, c := range modeCalls {
		check := []unix.SockFilter{
			{Code: load, K: argument(c.mode)},
			{Code: anyOf, K: setID, Jf: 1},
			refuse(unix.EPERM),
			{Code: load, K: dataNumber},
		}
		if c.flags >= 0 {
			const tmpfile = unix.O_TMPFILE &^ unix.O_DIRECTORY
			check = append([]unix.SockFilter{
				{Code: load, K: argument(c.flags)},
				{Code: anyOf, K: unix.O_CREAT | tmpfile, Jf: 3},
			}, check...)
		}
		part = append(part, unix.SockFilter{Code: equal, K: c.number, Jf: uint8(len(check))})
		part = append(part, check...)
	}
	return part
}

// withoutView is the part of the filter for a program that has no view and may
// write: the reaper decides on changes of modes, owners and times. Of other
// attributes it is as if no file had any.
func withoutView() []unix.SockFilter {
	var part []unix.SockFilter
	for number := range changes() {
		part = append(part, unix.SockFilter{Code: equal, K: uint32(number), Jf: 1}, ask(unix.EPERM))
	}
	for _, number := range []uint32{
		unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
		unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
	} {
		part = append(part, unix.SockFilter{Code: equal, K: number, Jf: 1}, refuse(unix.EOPNOTSUPP))
	}
	return append(part, noFlags...)
}

// noFlags is the part of the filter that changes no flags of files by ioctl.
var noFlags = []unix.SockFilter{
	{Code: equal, K: unix.SYS_IOCTL, Jf: 5},
	{Code: load, K: dataArg1},
	{Code: equal, K: unix.FS_IOC_SETFLAGS, Jt: 1},
	{Code: equal, K: setExtended, Jf: 1},
	refuse(unix.EPERM),
	allow,
}
