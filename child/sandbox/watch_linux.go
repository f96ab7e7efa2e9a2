//go:build linux && (amd64 || arm64 || riscv64)

package sandbox

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watches is the part of the filter for a program that may not read all files:
// the reaper decides where it may watch. Landlock has no right for that, and a
// watch tells the names in a directory.
var watches = []unix.SockFilter{
	{Code: equal, K: unix.SYS_INOTIFY_ADD_WATCH, Jf: 1},
	ask(unix.ENOSPC), // as if there were too many: then programs look for themselves
}

// readAttributes read extended attributes, flags and handles by a path, for which Landlock
// has no right: a program that may not read all files sees attributes and flags of its
// open files alone.
var readAttributes = calls{unix.EOPNOTSUPP, []uint32{
	unix.SYS_GETXATTR, unix.SYS_LGETXATTR, unix.SYS_GETXATTRAT, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR, unix.SYS_LISTXATTRAT,
	unix.SYS_FILE_GETATTR, unix.SYS_NAME_TO_HANDLE_AT,
}}

// readMounts tell where file systems are mounted, as /proc/self/mountinfo does, which such
// a program may not read: among these are the paths that are covered.
var readMounts = calls{unix.ENOSYS, []uint32{unix.SYS_LISTMOUNT, unix.SYS_STATMOUNT}}

// openProcess opens a process by its ID, and the descriptor tells of it: its user, its
// parent, its control group. A filter cannot tell the program's own processes from others;
// without the call, programs do as on an older kernel.
var openProcess = calls{unix.ENOSYS, []uint32{unix.SYS_PIDFD_OPEN}}

// noAccess is the part of the filter that opens no file for neither reading nor
// writing (access mode 3): Landlock lets any file be opened so, and its attributes
// be read then.
var noAccess = func() []unix.SockFilter {
	var part []unix.SockFilter
	for _, c := range modeCalls {
		if c.flags < 0 {
			continue
		}
		part = append(part,
			unix.SockFilter{Code: equal, K: c.number, Jf: 5},
			unix.SockFilter{Code: load, K: argument(c.flags)},
			unix.SockFilter{Code: and, K: unix.O_ACCMODE},
			unix.SockFilter{Code: equal, K: unix.O_ACCMODE, Jf: 1},
			refuse(unix.EACCES),
			unix.SockFilter{Code: load, K: dataNumber},
		)
	}
	return part
}()

// maxResolve bounds how often a path is resolved anew because something was renamed
// or mounted somewhere meanwhile.
const maxResolve = 64

// watch adds a watch to an inotify instance of the program if the program may read
// what is to be watched, and returns the watch's number. It adds the watch itself,
// to the file that it has looked at, as for changes.
func (d *decider) watch(call *notification) (number int64, err error) {
	const file, path, mask = 0, 1, 2 // the arguments
	flags := uint32(call.args[mask])
	t, err := d.openWatched(call.pid, call.args[path], flags&unix.IN_DONT_FOLLOW != 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(t)
	if !d.mayRead(t) {
		return 0, unix.EACCES
	}
	instance, err := takeFD(call.pid, int(int32(call.args[file])))
	if err != nil {
		return 0, err
	}
	defer unix.Close(instance)
	if err := d.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&call.id)); err != nil {
		return 0, err // it is gone, and what was read may be another's
	}
	n, err := unix.InotifyAddWatch(instance, procFD(t), flags&^unix.IN_DONT_FOLLOW)
	return int64(n), err
}

// openWatched opens (O_PATH) what a thread names, in the thread's own mounts: what
// is covered there is not to be told by an error either.
func (d *decider) openWatched(tid uint32, at uint64, link bool) (fd int, err error) {
	path, err := readString(tid, at)
	if err != nil {
		return -1, err
	}
	if path == "" {
		return -1, unix.ENOENT
	}
	of := "/proc/" + strconv.Itoa(int(tid))
	if own := ownDescriptor().FindStringSubmatch(path); own != nil && !link {
		return unix.Open(of+"/fd/"+own[1], unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if path[0] != '/' {
		cwd, err := os.Readlink(of + "/cwd")
		if err != nil {
			return -1, err
		}
		path = cwd + "/" + path
	}
	root, err := unix.Open(of+"/root", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if link {
		how.Flags |= unix.O_NOFOLLOW
	}
	for range maxResolve {
		if fd, err = unix.Openat2(root, path, &how); !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
	return -1, unix.ENOSPC
}

// mayRead reports whether the rules let a program read an open file.
func (d *decider) mayRead(fd int) bool {
	path, err := os.Readlink(procFD(fd))
	in := func(dir string) bool { return within(path, dir) }
	switch {
	case err != nil || !strings.HasPrefix(path, "/"):
		return false
	case in(d.temp), d.rules.Home != "" && in(d.rules.Home), d.rules.Spill != "" && in(d.rules.Spill):
		return true
	case deepest(path, d.rules.Blocked) > deepest(path, d.rules.Except):
		return false
	}
	if d.system == nil {
		d.system, _ = resolved(slices.Concat(systemPaths, devices)) // what cannot be found is not granted
	}
	return slices.ContainsFunc(slices.Concat(d.rules.ReadWrite, d.rules.ReadOnly, d.system), in)
}

// takeFD makes a copy of a descriptor of the process that a thread is of.
func takeFD(tid uint32, fd int) (int, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(int(tid)) + "/status")
	if err != nil {
		return -1, err
	}
	pid, err := strconv.Atoi(statusField(status, "Tgid"))
	if err != nil {
		return -1, err
	}
	return processFD(pid, fd)
}
