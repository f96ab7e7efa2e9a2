//go:build linux && (amd64 || arm64 || riscv64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// change is one way of the kernel to change a mode, an owner or times. Its
// numbers are the places of arguments; -1 is none.
type change struct {
	dir   int // a descriptor: what the path begins at, or without a path the file
	path  int
	flags int
	link  bool // a symbolic link is changed itself, whatever the flags
	what  func(d *decider, target target, call *notification, arg int) error
	arg   int // the first of those that say what becomes of the file
}

// changes are decided on by the reaper where a program has no view. It does them
// itself, on the file that it has looked at: what the program has in memory may
// be another path by then.
var changes = sync.OnceValue(func() map[int32]change {
	all := map[int32]change{
		unix.SYS_FCHMOD:    {0, -1, -1, false, chmod, 1},
		unix.SYS_FCHMODAT:  {0, 1, -1, false, chmod, 2},
		unix.SYS_FCHMODAT2: {0, 1, 3, false, chmod, 2},
		unix.SYS_FCHOWN:    {0, -1, -1, false, chown, 1},
		unix.SYS_FCHOWNAT:  {0, 1, 4, false, chown, 2},
		unix.SYS_UTIMENSAT: {0, 1, 3, false, setTimes(16, 1), 2},
	}
	if runtime.GOARCH == "amd64" { // the calls of oldCalls
		all[90] = change{-1, 0, -1, false, chmod, 1}
		all[92] = change{-1, 0, -1, false, chown, 1}
		all[94] = change{-1, 0, -1, true, chown, 1}
		all[132] = change{-1, 0, -1, false, setTimes(8, 0), 1}
		all[235] = change{-1, 0, -1, false, setTimes(16, 1000), 1}
		all[261] = change{0, 1, -1, false, setTimes(16, 1000), 2}
	}
	return all
})

// notification is the kernel's struct seccomp_notif.
type notification struct {
	id    uint64
	pid   uint32 // of the thread
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// response is the kernel's struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

// decider does what a program may do of changes and watches. It is for one
// goroutine.
type decider struct {
	listener int
	rules    Rules // Blocked is resolved
	temp     string
	system   []string // what every program may read; nil until it is needed
}

// target is an open file (O_PATH).
type target struct {
	fd   int
	stat unix.Stat_t
}

// serve decides on calls until nobody is left to make any, which may be never:
// the caller ends with its process.
func (d *decider) serve() {
	for {
		var call notification
		if err := d.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&call)); err != nil {
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) { // the caller was killed meanwhile
				if d.over() {
					return
				}
				continue
			}
			return
		}
		answer := response{id: call.id}
		var err error
		if answer.val, err = d.decide(&call); err != nil {
			errno := unix.EPERM
			_ = errors.As(err, &errno)
			answer.val, answer.error = 0, -int32(errno)
		}
		_ = d.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)) // or the caller was killed
	}
}

// over reports whether no process has the filter any more.
func (d *decider) over() bool {
	fds := []unix.PollFd{{Fd: int32(d.listener)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLHUP != 0
}

func (d *decider) ioctl(request uint, p unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.listener), uintptr(request), uintptr(p)); errno != 0 {
		return errno
	}
	return nil
}

// decide makes the change, or the watch, if it is allowed. What it returns is the
// program's.
func (d *decider) decide(call *notification) (value int64, err error) {
	if call.nr != unix.SYS_INOTIFY_ADD_WATCH {
		return 0, d.change(call)
	}
	if !asWe(call.pid) {
		return 0, unix.ENOSPC
	}
	value, err = d.watch(call)
	if errors.Is(err, unix.EPERM) { // we cannot look into the program
		err = unix.ENOSPC
	}
	return value, err
}

// change makes the change if it is allowed.
func (d *decider) change(call *notification) error {
	c, ok := changes()[call.nr]
	if !ok || !asWe(call.pid) {
		return unix.EPERM
	}
	t, err := d.open(c, call)
	if err != nil {
		return err
	}
	defer unix.Close(t.fd)
	if err := d.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&call.id)); err != nil {
		return err // it is gone, and what was read may be another's
	}
	if !d.may(t) {
		return unix.EPERM
	}
	return c.what(d, t, call, c.arg)
}

// asWe reports whether a thread has the user, the group and the capabilities
// over files that we have: we do for it what it could do without us.
func asWe(tid uint32) bool {
	ours, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return false
	}
	theirs, err := os.ReadFile("/proc/" + strconv.Itoa(int(tid)) + "/status")
	if err != nil {
		return false
	}
	const needed = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER
	capabilities := func(status []byte) uint64 {
		set, _ := strconv.ParseUint(statusField(status, "CapEff"), 16, 64)
		return set & needed
	}
	return statusField(ours, "Uid") == statusField(theirs, "Uid") && statusField(ours, "Gid") == statusField(theirs, "Gid") &&
		capabilities(ours)&^capabilities(theirs) == 0
}

// statusField is a field of a process's status file.
func statusField(status []byte, name string) string {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name+":"))
	value, _, _ := bytes.Cut(rest, []byte("\n"))
	return strings.TrimSpace(string(value))
}

// open opens what a call is about, as the caller would.
func (d *decider) open(c change, call *notification) (target, error) {
	base := fmt.Sprintf("/proc/%d/cwd", call.pid)
	if dir := c.dir; dir >= 0 && int32(call.args[dir]) != unix.AT_FDCWD {
		base = fmt.Sprintf("/proc/%d/fd/%d", call.pid, int32(call.args[dir]))
	}
	flags := 0
	if c.flags >= 0 {
		flags = int(int32(call.args[c.flags]))
	}
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return target{}, unix.EINVAL
	}
	path := ""
	if c.path >= 0 && call.args[c.path] != 0 {
		var err error
		if path, err = readString(call.pid, call.args[c.path]); err != nil {
			return target{}, err
		}
		if path == "" && flags&unix.AT_EMPTY_PATH == 0 {
			return target{}, unix.ENOENT
		}
	}
	if path == "" { // futimens says nothing, others an empty path
		return opened(unix.Open(base, unix.O_PATH|unix.O_CLOEXEC, 0))
	}
	if own := ownDescriptor().FindStringSubmatch(path); own != nil && flags&unix.AT_SYMLINK_NOFOLLOW == 0 {
		return opened(unix.Open(fmt.Sprintf("/proc/%d/fd/%s", call.pid, own[1]), unix.O_PATH|unix.O_CLOEXEC, 0))
	}
	from := unix.AT_FDCWD
	if path[0] != '/' {
		fd, err := unix.Open(base, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return target{}, err
		}
		defer unix.Close(fd)
		from = fd
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS} // they would be ours
	if c.link || flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		how.Flags |= unix.O_NOFOLLOW
	}
	return opened(unix.Openat2(from, path, &how))
}

// ownDescriptor is how a program names a descriptor of its own by a path.
var ownDescriptor = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:/proc/(?:self|thread-self)|/dev)/fd/(\d{1,9})$`)
})

func opened(fd int, err error) (target, error) {
	if err != nil {
		return target{}, err
	}
	t := target{fd: fd}
	if err := unix.Fstat(fd, &t.stat); err != nil {
		unix.Close(fd)
		return target{}, err
	}
	return t, nil
}

// may reports whether the rules let a program change a file.
func (d *decider) may(t target) bool {
	if t.stat.Nlink == 0 {
		return true // it has no name any more, and goes with the program
	}
	path, err := os.Readlink(procFD(t.fd))
	switch {
	case err != nil:
		return false
	case !strings.HasPrefix(path, "/"):
		return true // a pipe or a socket
	case within(path, d.temp), d.rules.Home != "" && within(path, d.rules.Home):
		return true
	case d.rules.Spill != "" && within(path, d.rules.Spill), deepest(path, d.rules.Blocked) > deepest(path, d.rules.Except):
		return false
	case slices.ContainsFunc(d.rules.Blocked, func(blocked string) bool { return within(blocked, path) }):
		return false // it could be closed, or opened to others, for those that what is blocked belongs to
	}
	return d.rules.writes(path)
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func chmod(_ *decider, t target, call *notification, arg int) error {
	if t.stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.EOPNOTSUPP
	}
	return unix.Chmod(procFD(t.fd), uint32(call.args[arg])&0o7777&^setID)
}

func chown(_ *decider, t target, call *notification, arg int) error {
	return unix.Fchownat(t.fd, "", int(int32(call.args[arg])), int(int32(call.args[arg+1])), unix.AT_EMPTY_PATH)
}

// setTimes sets times that stand in memory as two records of that size: seconds,
// and a fraction of so many nanoseconds if there is one.
func setTimes(size, fraction int) func(*decider, target, *notification, int) error {
	return func(_ *decider, t target, call *notification, arg int) error {
		var times *[2]unix.Timespec
		if at := call.args[arg]; at != 0 {
			data := make([]byte, 2*size)
			if n, err := readMemory(call.pid, at, data); err != nil || n < len(data) {
				return unix.EFAULT
			}
			times = &[2]unix.Timespec{}
			for i := range times {
				record := data[i*size:]
				times[i].Sec = *(*int64)(unsafe.Pointer(&record[0]))
				if fraction > 0 {
					times[i].Nsec = *(*int64)(unsafe.Pointer(&record[8])) * int64(fraction)
				}
			}
		}
		nothing := [1]byte{}
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(t.fd), uintptr(unsafe.Pointer(&nothing)),
			uintptr(unsafe.Pointer(times)), unix.AT_EMPTY_PATH, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	}
}

// readString reads a path from the memory of a process.
func readString(pid uint32, at uint64) (string, error) {
	var text []byte
	for len(text) < unix.PathMax {
		page := uint64(os.Getpagesize()) // what follows it may not be there
		chunk := make([]byte, min(page-at%page, unix.PathMax-uint64(len(text))))
		n, err := readMemory(pid, at, chunk)
		if errors.Is(err, unix.EPERM) {
			return "", unix.EPERM // we may not look there
		}
		if err != nil || n == 0 {
			return "", unix.EFAULT
		}
		if end := bytes.IndexByte(chunk[:n], 0); end >= 0 {
			return string(append(text, chunk[:end]...)), nil
		}
		text, at = append(text, chunk[:n]...), at+uint64(n)
	}
	return "", unix.ENAMETOOLONG
}

func readMemory(pid uint32, at uint64, to []byte) (int, error) {
	local := []unix.Iovec{{Base: &to[0]}}
	local[0].SetLen(len(to))
	return unix.ProcessVMReadv(int(pid), local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(to)}}, 0)
}
