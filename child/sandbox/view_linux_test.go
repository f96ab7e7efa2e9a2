package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/sandbox/sandboxtest"
)

// change tries all that can be done to what is said of a file, by its path and
// by a descriptor, and says what came of it.
func change(path string) string {
	var says []string
	try := func(name string, err error) {
		if err == nil {
			says = append(says, name)
		}
	}
	call := func(number uintptr, args ...uintptr) error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := syscall.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
	uid, gid := os.Getuid(), os.Getgid()
	var stat unix.Stat_t
	times := []unix.Timespec{{Sec: 1}, {Sec: 1}}
	try("stat", unix.Stat(path, &stat))
	try("chmod", unix.Chmod(path, 0o640))
	if at, err := unix.Open(path, unix.O_PATH, 0); err == nil {
		nothing, _ := unix.BytePtrFromString("")
		try("chmod-empty", call(unix.SYS_FCHMODAT2, uintptr(at), uintptr(unsafe.Pointer(nothing)), 0o640, unix.AT_EMPTY_PATH))
		try("chmod-proc", unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", at), 0o640))
		try("chown-empty", unix.Fchownat(at, "", uid, gid, unix.AT_EMPTY_PATH))
		unix.Close(at)
	}
	try("chown", unix.Chown(path, uid, gid))
	try("lchown", unix.Lchown(path, uid, gid))
	try("times", unix.UtimesNanoAt(unix.AT_FDCWD, path, times, 0))
	try("ltimes", unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW))
	try("setxattr", unix.Setxattr(path, "user.x", []byte("x"), 0))
	try("lremovexattr", unix.Lremovexattr(path, "user.x"))
	if fd, err := unix.Open(path, unix.O_RDONLY, 0); err == nil {
		says = append(says, "open")
		try("fchmod", unix.Fchmod(fd, 0o640))
		try("fchown", unix.Fchown(fd, uid, gid))
		try("ftimes", call(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times[0])), 0))
		try("fsetxattr", unix.Fsetxattr(fd, "user.x", []byte("x"), 0))
		try("lease", call(unix.SYS_FCNTL, uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK))
		if err := call(unix.SYS_FCNTL, uintptr(fd), unix.F_SETDELEG, 0); err != unix.EPERM {
			says = append(says, "delegation") // an older kernel knows none
		}
		unix.Close(fd)
	}
	if fd, err := unix.Open(filepath.Dir(path), unix.O_RDONLY, 0); err == nil {
		try("notify", call(unix.SYS_FCNTL, uintptr(fd), unix.F_NOTIFY, 4)) // DN_CREATE
		unix.Close(fd)
	}
	_, err := os.ReadDir(filepath.Dir(path))
	try("list", err)
	if fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, unix.O_RDONLY); err == nil {
		says = append(says, "fanotify")
		unix.Close(fd)
	}
	if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC); err == nil {
		_, err := unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_CREATE)
		try("watch", err)
		unix.Close(fd)
	}
	return strings.Join(says, " ")
}

// setID tries all ways to a file that gives the rights of its owner away.
func setID(dir string) string {
	var says []string
	for _, mode := range []uint32{unix.S_ISUID | 0o755, unix.S_ISGID | 0o755} {
		path := filepath.Join(dir, fmt.Sprintf("set-%o", mode))
		try := func(f func() error) {
			_ = f() // what counts is the file
			var stat unix.Stat_t
			if err := unix.Lstat(path, &stat); err == nil && stat.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
				says = append(says, fmt.Sprintf("%o", stat.Mode))
			}
		}
		open := func(flags int) error {
			fd, err := unix.Open(path, flags, mode)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
		try(func() error { return open(unix.O_CREAT | unix.O_WRONLY) })
		try(func() error { return unix.Unlink(path) })
		try(func() error { return unix.Mknod(path, unix.S_IFREG|mode, 0) })
		try(func() error { return unix.Unlink(path) })
		try(func() error {
			fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: uint64(mode)})
			if err == nil {
				unix.Close(fd)
			}
			return err
		})
		try(func() error { return os.WriteFile(path, nil, 0o755) })
		try(func() error { return unix.Chmod(path, mode) })
		try(func() error { return unix.Fchmodat(unix.AT_FDCWD, path, mode, unix.AT_SYMLINK_NOFOLLOW) })
		try(func() error {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			return unix.Fchmod(int(file.Fd()), mode)
		})
		try(func() error {
			fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY, mode)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_ = unix.Unlink(path)
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
		})
	}
	return strings.Join(says, " ")
}

// ordinary is what programs do as a rule, and then what they may not do by links
// and other names.
const ordinary = `
	rm -rf out copy x.tar new link
	cp -p file copy && tar -cf x.tar copy && mkdir out && tar -xpf x.tar -C out && install -m 600 copy out/installed &&
	touch -d @86400 out/copy && chmod 600 out/copy && test "$(stat -c %a-%Y out/copy)" = 600-86400 &&
	chown $(id -u):$(id -g) out && touch -h -d @86400 out && umask 0 && touch new && chmod u=rw,go= new &&
	ln -s ../.nexus3/sessions/file link && touch -h -d @86400 link && test "$(stat -c %Y link)" = 86400 || echo failed
	exec 2>&- 3<out/copy
	chmod 640 /dev/fd/3 && test $(stat -c %a out/copy) = 640 || echo failed
	chmod 777 link && echo link
	chmod 777 ../.nexus3 && echo home
	touch -d @86400 ../.nexus3/sessions && echo times
	chmod 777 /proc/self/cwd/../.nexus3/sessions/file && echo proc
	cd ../.nexus3/sessions && chmod 777 file && echo relative
	chmod 777 "$TMPDIR/.." && echo above
	setpriv --reuid 1 --regid 1 --clear-groups chmod 777 ../../src/copy && echo another
	echo fine`

// attributes runs programs in a directory with a home below it, and says what
// they could change.
func attributes(args []string) {
	base, prepare := args[0], map[string]func() error{
		"views": func() error { return nil }, "bare": sandboxtest.WithoutNamespaces,
		"container": func() error { return errors.Join(sandboxtest.WithoutNamespaces(), sandboxtest.WithoutCopies()) }, "listener": sandboxtest.WithListener,
	}[args[1]]
	if err := prepare(); err != nil {
		panic(err)
	}
	work, home := filepath.Join(base, "work"), filepath.Join(base, "work", ".nexus3")
	self, _ := os.Executable()
	key := os.Getpid() << 8 // of no other process of this time
	others, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		panic(err)
	}
	defer unix.SysvShmCtl(others, unix.IPC_RMID, nil)
	for _, kind := range []string{"unconfined", "trusted", "sandboxed"} {
		rules := map[string]sandbox.Rules{
			"unconfined": {},
			"trusted":    {Confinement: sandbox.WherePossible, ReadWrite: []string{work}, ReadOnly: []string{"/"}, Network: true},
			"sandboxed":  {Confinement: sandbox.Always, ReadWrite: []string{work}, ReadOnly: []string{self}},
		}[kind]
		rules.Blocked, rules.Temp = []string{home}, filepath.Join(home, "temp")
		for _, path := range []string{"work/src/file", "work/.nexus3/sessions/file", "beside/file"} {
			p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: role("change", filepath.Join(base, path)), Dir: work, Rules: rules})
			if err != nil {
				fmt.Println(err)
				return
			}
			text, _ := io.ReadAll(p.Stdout())
			fmt.Printf("%s %s: %s", kind, path, text)
			p.Close()
		}
		p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: role("shared", strconv.Itoa(key)), Dir: work, Rules: rules})
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ := io.ReadAll(p.Stdout())
		p.Close()
		fmt.Printf("%s shared: %s; left: %s\n", kind, strings.TrimSpace(string(text)), leftShared(key))
		if kind == "unconfined" {
			continue
		}
		p, err = sandbox.Start(context.Background(), sandbox.Spec{Argv: role("devices", someDevices(base, args[1])...), Dir: work, Rules: rules})
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ = io.ReadAll(p.Stdout())
		p.Close()
		fmt.Printf("%s devices: %s", kind, text)
		if kind == "sandboxed" {
			p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: role("watched", base), Dir: filepath.Join(work, "src"), Rules: rules})
			if err != nil {
				fmt.Println(err)
				return
			}
			text, _ := io.ReadAll(p.Stdout())
			p.Close()
			fmt.Printf("watched: %s", text)
		}
		p, err = sandbox.Start(context.Background(), sandbox.Spec{Argv: sh(ordinary), Dir: filepath.Join(work, "src"), Rules: rules})
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ = io.ReadAll(p.Stdout())
		fmt.Printf("%s: %s", kind, text)
		p.Close()
	}
}

// What is said of a file beside its content can be changed where the program may
// write, and nowhere else: neither in a home below that nor beside it. The names
// in the home are not told either, nor does a sandboxed program watch what it may not
// read, nor any program take a lease, which would hold up others, or open a device that
// tells of files or terminals of others. Memory that is shared by a key is the program's
// own, or there is none.
func TestAttributes(t *testing.T) {
	const (
		all     = "stat chmod chmod-empty chmod-proc chown-empty chown lchown times ltimes setxattr lremovexattr open fchmod fchown ftimes fsetxattr list watch"
		decided = "stat chmod chmod-empty chmod-proc chown-empty chown lchown times ltimes open fchmod fchown ftimes list"
		refused = "ENOTDIR file; EACCES outside; EACCES BASE/beside; EACCES ../../beside/file; %s BASE/work/.nexus3/sessions; EACCES ../.nexus3; " +
			"ENOENT BASE/work/.nexus3/nothing; ENOENT nothing; EACCES /; EACCES /tmp; EACCES /etc/shadow; EACCES /proc; EACCES /proc/1; " +
			"EACCES TMP/..; EACCES /proc/self/fd/101; seen"
		unwatched = "ENOSPC .; ENOSPC file; ENOSPC inside; ENOSPC ../src/../src; ENOSPC BASE/work/src/file; ENOSPC /usr/bin; ENOSPC /dev/null; " +
			"ENOSPC TMP; ENOSPC ..; ENOSPC /proc/self/fd/100; ENOSPC outside; ENOSPC file; ENOSPC ..; ENOSPC ..; "
	)
	for _, tt := range []struct {
		name string
		uid  uint32
		how  string
		want map[string]string
	}{
		{"root", 0, "views", map[string]string{
			"trusted own": all, "trusted home": "", "trusted beside": "stat open list watch",
			"sandboxed own": all, "sandboxed home": "", "sandboxed beside": "stat", "watched": fmt.Sprintf(refused, "ENOENT"),
		}},
		{"ordinary user", 65534, "views", map[string]string{
			"trusted own": all, "trusted home": "", "trusted beside": "stat open list watch",
			"sandboxed own": all, "sandboxed home": "", "sandboxed beside": "stat", "watched": fmt.Sprintf(refused, "ENOENT"),
		}},
		{"root without namespaces", 0, "bare", map[string]string{
			"trusted own": decided + " watch", "trusted home": "stat list watch", "trusted beside": "stat open list watch",
			"sandboxed own": decided + " watch", "sandboxed home": "stat list", "sandboxed beside": "stat", "watched": fmt.Sprintf(refused, "EACCES"),
		}},
		{"ordinary user without namespaces", 65534, "bare", map[string]string{
			"trusted own": decided + " watch", "trusted home": "stat list watch", "trusted beside": "stat open list watch",
			"sandboxed own": decided + " watch", "sandboxed home": "stat list", "sandboxed beside": "stat", "watched": fmt.Sprintf(refused, "EACCES"),
		}},
		{"ordinary user in a container", 65534, "container", map[string]string{
			"trusted own": decided + " watch", "trusted home": "stat list watch", "trusted beside": "stat open list watch",
			"sandboxed own": decided, "sandboxed home": "stat list", "sandboxed beside": "stat",
			"watched": unwatched + strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf(refused, "EACCES"), "ENOTDIR file; "), "; seen"),
		}},
		{"ordinary user whose listener is taken", 65534, "listener", map[string]string{
			"trusted own": all, "trusted home": "", "trusted beside": "stat open list watch",
			"sandboxed own": strings.TrimSuffix(all, " watch"), "sandboxed home": "", "sandboxed beside": "stat", "watched": "nothing: ENOSPC",
		}},
	} {
		if os.Getuid() != 0 && tt.uid == 0 {
			continue // an ordinary user's row says it
		}
		t.Run(tt.name, func(t *testing.T) {
			base, argv := placeFor(t, tt.uid)
			cmd := exec.Command(argv[0], append(argv[1:], base, tt.how)...)
			cmd.Env = append(os.Environ(), "TMPDIR="+base)
			if tt.uid != 0 && os.Getuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.uid}}
			}
			text, err := cmd.CombinedOutput()
			var want strings.Builder
			for _, kind := range []string{"unconfined", "trusted", "sandboxed"} {
				for _, at := range []struct{ path, name string }{{"work/src/file", "own"}, {"work/.nexus3/sessions/file", "home"}, {"beside/file", "beside"}} {
					can, ok := tt.want[kind+" "+at.name]
					if !ok {
						can = strings.Replace(all, "list", "lease delegation notify list fanotify", 1)
					}
					fmt.Fprintf(&want, "%s %s: %s\n", kind, at.path, can)
				}
				can := map[string]string{"bare": "; left: ", "container": "; left: "}[tt.how]
				if can == "" {
					can = "memory semaphores queue; left: "
				}
				if kind == "unconfined" {
					can = "others memory semaphores queue; left: memory semaphores queue"
				}
				fmt.Fprintf(&want, "%s shared: %s\n", kind, can)
				if kind != "unconfined" {
					fmt.Fprintf(&want, "%s devices: full null random tty urandom zero\n", kind)
				}
				if kind == "sandboxed" {
					fmt.Fprintf(&want, "watched: %s\n", tt.want["watched"])
				}
				if kind != "unconfined" {
					fmt.Fprintf(&want, "%s: fine\n", kind)
				}
			}
			if err != nil || string(text) != want.String() {
				t.Errorf("%v\n%s", err, cmp.Diff(want.String(), string(text)))
			}
		})
	}
}

// placeFor makes a directory of a user's, and the command line of the role
// attributes that the user can run.
func placeFor(t *testing.T, uid uint32) (base string, argv []string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	argv = role("attributes")
	bin := filepath.Join(base, "bin", "program") // the test's own directory is root's
	for _, path := range []string{"work/src/file", "work/.nexus3/sessions/file", "work/.nexus3/temp/other", "beside/file", "bin/x"} {
		path = filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, "canary")
	}
	copyFile(t, argv[0], bin)
	argv[0] = bin
	if os.Getuid() != 0 {
		return base, argv
	}
	for path, dev := range map[string]uint64{"work/disk": unix.Mkdev(7, 0), "work/memory": unix.Mkdev(1, 5), "beside/memory": unix.Mkdev(1, 5)} {
		mode := uint32(unix.S_IFCHR)
		if path == "work/disk" {
			mode = unix.S_IFBLK
		}
		if err := unix.Mknod(filepath.Join(base, path), mode|0o666, int(dev)); err != nil {
			t.Fatal(err)
		}
	}
	for path := filepath.Dir(base); path != "/tmp" && path != "/"; path = filepath.Dir(path) {
		os.Chmod(path, 0o777)
	}
	if err := filepath.WalkDir(base, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(uid), int(uid))
	}); err != nil {
		t.Fatal(err)
	}
	return base, argv
}

// A working directory in the home is the agent's; the home around it is not there,
// also on the way up from it. Nor is a file that is blocked.
func TestWorkInTheHome(t *testing.T) {
	p := newPlace(t)
	home, own := filepath.Dir(p.work), filepath.Join(p.work, "sub", "own")
	if err := os.Mkdir(filepath.Dir(own), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, own, "own")
	for kind, rules := range map[string]sandbox.Rules{"trusted": p.trusted(), "sandboxed": p.sandboxed()} {
		rules.Blocked, rules.Except = []string{home, own, p.beside, p.secret}, []string{p.work}
		rules.Temp = filepath.Join(home, "temp")
		for _, script := range []string{
			"echo x >> own && chmod 600 own && touch $TMPDIR/x && chmod 600 $TMPDIR/x && test -d sub",
			"! test -e ../beside && ! test -e " + p.beside + " && ! test -e ../work/../beside/secret",
			"! touch -h ../new && ! chmod 777 .. && ! cat sub/own && ! chmod 600 sub/own && ! echo x > sub/own",
		} {
			if text, exit := output(t, rules, p.work, sh(script)...); exit.Code != 0 {
				t.Errorf("%s: %s: exit %+v: %s", kind, script, exit, text)
			}
		}
		if text, err := os.ReadFile(own); err != nil || string(text) != "own" {
			t.Errorf("blocked: %q, %v", text, err)
		}
	}
}

// No file gets the bits that give the rights of its owner to others.
func TestSetID(t *testing.T) {
	p := newPlace(t)
	if text, _ := output(t, sandbox.Rules{}, p.work, role("setid", p.work)...); strings.Count(text, "104755") < 5 || strings.Count(text, "102755") < 5 {
		t.Errorf("unconfined: %s", text)
	}
	for kind, rules := range map[string]sandbox.Rules{"trusted": p.trusted(), "sandboxed": p.sandboxed()} {
		p := newPlace(t)
		rules.ReadWrite = []string{p.work}
		if text, _ := output(t, rules, p.work, role("setid", p.work)...); text != "\n" {
			t.Errorf("%s: %s", kind, text)
		}
		if text, exit := output(t, rules, p.work, sh("chmod u+s own || chmod g+s . || cp /bin/true x && chmod 4755 x || ! install -m 4755 own y")...); exit.Code != 0 {
			t.Errorf("%s: exit %+v: %s", kind, exit, text)
		}
		if text, exit := output(t, rules, p.work, sh("tar -cf x.tar own && mkdir out && tar -xpf x.tar -C out && cp -p own copy && touch -d 2001-01-01 copy && chmod 600 copy")...); exit.Code != 0 {
			t.Errorf("%s: exit %+v: %s", kind, exit, text)
		}
		// A file that has the bits already has them no more when it is written to.
		for name, mode := range map[string]os.FileMode{"u": os.ModeSetuid, "g": os.ModeSetgid} {
			path := filepath.Join(p.work, name)
			write(t, path, "theirs")
			if err := os.Chmod(path, mode|0o755); err != nil {
				t.Fatal(err)
			}
			text, exit := output(t, rules, p.work, sh("cat own > "+name)...)
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 || exit.Code != 0 {
				t.Errorf("%s: %v, %v, exit %+v: %s", kind, info.Mode(), err, exit, text)
			}
		}
	}
}

// A program has no capability but root's own few, nor can what it starts get one
// from the sets that are inherited, in whatever view it is.
func TestCapabilities(t *testing.T) {
	const few = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID
	for _, tt := range []struct {
		name   string
		uid    uint32
		before []string // what its command line begins with
		bounds map[string]uint64
	}{
		{"root", 0, nil, map[string]uint64{"CapInh": 0, "CapPrm": few, "CapEff": few, "CapBnd": few, "CapAmb": 0}},
		{"root in a user namespace", 0, []string{"setpriv", "--bounding-set=-sys_admin"}, map[string]uint64{"CapInh": 0, "CapPrm": few, "CapEff": few, "CapBnd": few, "CapAmb": 0}},
		{"ordinary user", 65534, nil, map[string]uint64{"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapAmb": 0}},
	} {
		if os.Getuid() != 0 && tt.uid == 0 {
			continue // an ordinary user's row says it
		}
		base, argv := placeFor(t, tt.uid)
		argv = append(append(tt.before, argv[0], "role", "capabilities"), filepath.Join(base, "work"))
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "TMPDIR="+base)
		if tt.uid != 0 && os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.uid}}
		}
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", tt.name, err, text)
		}
		for name, bound := range tt.bounds {
			_, rest, _ := strings.Cut(string(text), name+":\t")
			var set uint64
			if _, err := fmt.Sscanf(rest, "%x", &set); err != nil || set&^bound != 0 {
				t.Errorf("%s: %s is %#x, want at most %#x (%v): %s", tt.name, name, set, bound, err, text)
			}
		}
	}
}
