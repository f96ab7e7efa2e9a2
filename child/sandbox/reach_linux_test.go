package sandbox_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PROCESS_MADVISE, unix.SYS_LISTNS,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_FANOTIFY_INIT, unix.SYS_OPEN_BY_HANDLE_AT,
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

// watched tries to watch what its directory, work/src of base, holds and what lies
// elsewhere, and says what could not be watched.
func watched(base string) string {
	var says []string
	instance, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err.Error()
	}
	try := func(path string, mask uint32) {
		number, err := unix.InotifyAddWatch(instance, path, mask)
		if err == nil && number > 0 {
			_, err = unix.InotifyRmWatch(instance, uint32(number))
		}
		if err != nil {
			name := strings.NewReplacer(os.Getenv("TMPDIR"), "TMP", base, "BASE").Replace(path)
			says = append(says, unix.ErrnoName(err.(syscall.Errno))+" "+name)
		}
	}
	os.Symlink("file", "inside")
	os.Symlink(filepath.Join(base, "beside"), "outside")
	const here, away = 100, 101
	for fd, path := range map[int]string{here: ".", away: base + "/beside"} {
		if from, err := unix.Open(path, unix.O_PATH, 0); err == nil {
			unix.Dup3(from, fd, 0)
		}
	}
	own := []string{
		".", "file", "inside", "../src/../src", base + "/work/src/file", "/usr/bin", "/dev/null", os.Getenv("TMPDIR"), "..",
		fmt.Sprintf("/proc/self/fd/%d", here),
	}
	for _, path := range own {
		try(path, unix.IN_ALL_EVENTS)
	}
	try("outside", unix.IN_CREATE|unix.IN_DONT_FOLLOW) // the link, which is its own
	try("file", unix.IN_CREATE|unix.IN_ONLYDIR)
	runtime.LockOSThread() // then this thread or the other is not the first one
	other := make(chan bool)
	go func() {
		runtime.LockOSThread()
		try("..", unix.IN_CREATE)
		close(other)
	}()
	<-other
	try("..", unix.IN_CREATE)
	for _, path := range []string{
		"outside", base + "/beside", "../../beside/file", base + "/work/.nexus3/sessions", "../.nexus3", base + "/work/.nexus3/nothing",
		"nothing", "/", "/tmp", "/etc/shadow", "/proc", "/proc/1", os.Getenv("TMPDIR") + "/..", fmt.Sprintf("/proc/self/fd/%d", away),
	} {
		try(path, unix.IN_ALL_EVENTS)
	}
	if _, err := unix.InotifyAddWatch(instance, ".", unix.IN_CREATE); err == nil {
		os.WriteFile("made", nil, 0o600)
		var events [4096]byte // with those of the other watches, on which others act too
		for n, err := unix.Read(instance, events[:]); err == nil; n, err = unix.Read(instance, events[:]) {
			if bytes.Contains(events[:n], []byte("made\x00")) {
				says = append(says, "seen")
			}
		}
	}
	if !slices.ContainsFunc(says, func(s string) bool { return !strings.HasPrefix(s, "ENOSPC ") }) {
		return "nothing: ENOSPC"
	}
	return strings.Join(says, "; ")
}

// extended reads extended attributes, flags and the handle of a file by all ways, and says
// which were refused.
func extended(path string) string {
	var says []string
	at, _ := unix.BytePtrFromString(path)
	name, _ := unix.BytePtrFromString("user.x")
	var value [64]byte
	try := func(what string, call uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := syscall.Syscall6(call, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 && errno != unix.ENODATA {
			says = append(says, unix.ErrnoName(errno)+" "+what)
		}
	}
	p, n, v := uintptr(unsafe.Pointer(at)), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&value[0]))
	record := struct { // xattr_args
		value uint64
		size  uint32
		flags uint32
	}{uint64(v), 64, 0}
	here := unix.AT_FDCWD
	try("getxattr", unix.SYS_GETXATTR, p, n, v, 64)
	try("lgetxattr", unix.SYS_LGETXATTR, p, n, v, 64)
	try("getxattrat", unix.SYS_GETXATTRAT, uintptr(here), p, 0, n, uintptr(unsafe.Pointer(&record)), unsafe.Sizeof(record))
	var flags [32]byte // file_attr
	try("file_getattr", unix.SYS_FILE_GETATTR, uintptr(here), p, uintptr(unsafe.Pointer(&flags[0])), unsafe.Sizeof(flags), 0)
	handle := struct{ size, kind uint32 }{} // of which the size alone is asked for
	var mount int32
	try("name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, uintptr(here), p, uintptr(unsafe.Pointer(&handle)), uintptr(unsafe.Pointer(&mount)), 0)
	try("listxattr", unix.SYS_LISTXATTR, p, v, 64)
	try("llistxattr", unix.SYS_LLISTXATTR, p, v, 64)
	try("listxattrat", unix.SYS_LISTXATTRAT, uintptr(here), p, 0, v, 64)
	for _, mode := range []int{unix.O_RDONLY, unix.O_ACCMODE} {
		fd, err := unix.Open(path, mode, 0)
		if err != nil {
			says = append(says, fmt.Sprintf("%s open %d", unix.ErrnoName(err.(syscall.Errno)), mode))
			continue
		}
		try("fgetxattr", unix.SYS_FGETXATTR, uintptr(fd), n, v, 64)
		try("flistxattr", unix.SYS_FLISTXATTR, uintptr(fd), v, 64)
		unix.Close(fd)
	}
	return strings.Join(says, "; ")
}

// A sandboxed program is told extended attributes of the files alone that it can
// open for reading, and the usual tools do without the others.
func TestExtendedAttributes(t *testing.T) {
	const byPath = "ENOTSUP getxattr; ENOTSUP lgetxattr; ENOTSUP getxattrat; ENOTSUP file_getattr; ENOTSUP name_to_handle_at; " +
		"ENOTSUP listxattr; ENOTSUP llistxattr; ENOTSUP listxattrat; "
	p := newPlace(t)
	own := filepath.Join(p.work, "own")
	unconfined, _ := output(t, sandbox.Rules{}, p.work, role("extended", own)...) // an older kernel has no calls with at
	for _, tt := range []struct {
		rules      sandbox.Rules
		path, want string
	}{
		{p.trusted(), own, unconfined},
		{p.sandboxed(), own, byPath + "EACCES open 3\n"},
		{p.sandboxed(), p.secret, byPath + "EACCES open 0; EACCES open 3\n"},
	} {
		if text, _ := output(t, tt.rules, p.work, role("extended", tt.path)...); text != tt.want {
			t.Errorf("%s: %q, want %q", tt.path, text, tt.want)
		}
	}
	const tools = "ls -lZ own && ls -la && cp -a own copy && mkdir in out && mv copy in && cp -a in again && " +
		"tar --xattrs --acls -cf x.tar in && tar --xattrs --acls -xpf x.tar -C out && install -m 600 own new && test -f out/in/copy -a -f again/copy"
	if text, exit := output(t, p.sandboxed(), p.work, sh("set -e; ("+tools+") 2>&1")...); exit.Code != 0 {
		t.Errorf("exit %+v: %s", exit, text)
	}
}

// crowded runs a program while descriptors are on their way, more than its user may
// have so with the limit that it runs under.
func crowded(args []string) {
	const limit, each, times = 256, 200, 3
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		panic(err)
	}
	for range times {
		if err := unix.Sendmsg(pair[0], []byte{'x'}, unix.UnixRights(make([]int, each)...), nil, 0); err != nil {
			panic(err)
		}
	}
	if err := syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
	self, _ := os.Executable()
	p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: sh("echo fine"), Dir: args[0], Rules: sandbox.Rules{
		Confinement: sandbox.Always, ReadWrite: args[:1], ReadOnly: []string{self},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := io.ReadAll(p.Stdout())
	fmt.Printf("%s", text)
	p.Close()
}

// No process keeps another agent's programs from starting by descriptors that it
// sends and nobody receives.
func TestDescriptorsOnTheirWay(t *testing.T) {
	const uid = 65534 // not root, who is held to no number of descriptors
	base, argv := placeFor(t, uid)
	cmd := exec.Command(argv[0], "role", "crowded", filepath.Join(base, "work"))
	cmd.Env = append(os.Environ(), "TMPDIR="+base)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if text, err := cmd.CombinedOutput(); string(text) != "fine\n" {
		t.Errorf("%v: %s", err, text)
	}
}

// shared tries memory that somebody made with a key outside, and makes memory,
// semaphores and a queue by the next key.
func shared(key int) string {
	var says []string
	try := func(name string, call uintptr, a, b, c uintptr) {
		if _, _, errno := syscall.Syscall(call, a, b, c); errno == 0 {
			says = append(says, name)
		}
	}
	const create = unix.IPC_CREAT | 0o600
	try("others", unix.SYS_SHMGET, uintptr(key), 0, 0)
	if id, err := unix.SysvShmGet(key+1, 4096, create); err == nil {
		if _, err := unix.SysvShmAttach(id, 0, 0); err == nil {
			says = append(says, "memory")
		}
	}
	try("semaphores", unix.SYS_SEMGET, uintptr(key+1), 1, create)
	try("queue", unix.SYS_MSGGET, uintptr(key+1), create, 0)
	return strings.Join(says, " ")
}

// leftShared says what shared has left outside, and removes it.
func leftShared(key int) string {
	var says []string
	for _, kind := range []struct {
		name         string
		get, control uintptr
		remove       [2]uintptr // what follows the id
	}{
		{"memory", unix.SYS_SHMGET, unix.SYS_SHMCTL, [2]uintptr{unix.IPC_RMID}},
		{"semaphores", unix.SYS_SEMGET, unix.SYS_SEMCTL, [2]uintptr{0, unix.IPC_RMID}},
		{"queue", unix.SYS_MSGGET, unix.SYS_MSGCTL, [2]uintptr{unix.IPC_RMID}},
	} {
		id, _, errno := syscall.Syscall(kind.get, uintptr(key+1), 0, 0)
		if errno != 0 {
			continue
		}
		says = append(says, kind.name)
		syscall.Syscall(kind.control, id, kind.remove[0], kind.remove[1])
	}
	return strings.Join(says, " ")
}
