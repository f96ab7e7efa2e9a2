package sandbox_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/sandbox"
)

// place is a working directory with something beside it.
type place struct{ work, beside, secret string }

func newPlace(t *testing.T) place {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := place{filepath.Join(base, "work"), filepath.Join(base, "beside"), filepath.Join(base, "beside", "secret")}
	for _, dir := range []string{p.work, p.beside} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	write(t, p.secret, "canary")
	write(t, filepath.Join(p.work, "own"), "own")
	if err := os.Symlink(p.secret, filepath.Join(p.work, "link")); err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func (p place) trusted() sandbox.Rules {
	return sandbox.Rules{
		Confinement: sandbox.WherePossible, ReadWrite: []string{p.work}, ReadOnly: []string{"/"}, Network: true,
	}
}

// sandboxed can also run the test binary, for its roles, but not read what lies beside it.
func (p place) sandboxed() sandbox.Rules {
	self, _ := os.Executable()
	return sandbox.Rules{Confinement: sandbox.Always, ReadWrite: []string{p.work}, ReadOnly: []string{self}}
}

func TestFiles(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	neighbour, err := os.CreateTemp(filepath.Dir(self), "neighbour-")
	if err != nil {
		t.Fatal(err)
	}
	neighbour.Close()
	t.Cleanup(func() { os.Remove(neighbour.Name()) })
	write(t, neighbour.Name(), "canary")
	shared := "/dev/shm/" + tag(t)
	_, err = os.Stat("/sys/fs/cgroup/cgroup.procs")
	if err != nil {
		_, err = os.Stat("/sys/fs/cgroup/pids/cgroup.procs")
	}
	controlGroups := err == nil
	for _, tt := range []struct {
		script             string
		trusted, sandboxed bool // does it succeed?
	}{
		{"cat own", true, true},
		{"echo new > own && mv own other && rm other && mkdir -p a/b && ln -s x y && touch a/z && ln a/z a/b/z && mv a/z z", true, true},
		{"mkfifo f", true, true},
		{`echo x > "$TMPDIR/x" && cat "$TMPDIR/x" && mv own "$TMPDIR"`, true, true},
		{"echo x > /dev/null && head -c 1 /dev/zero && head -c 1 /dev/urandom", true, true},
		{"ls / /usr/bin >/dev/null && cat /etc/passwd && cat /proc/self/status", true, false}, // but for /
		{"ls /usr/bin && cat /etc/passwd /proc/meminfo /proc/cpuinfo /proc/stat /proc/sys/kernel/ostype /proc/sys/vm/overcommit_memory", true, true},
		{"cat /proc/self/status", true, false},
		{"cat /proc/1/cmdline", true, false},
		{"cat /proc/$PPID/cmdline", true, false},
		{"ls /proc", true, false},
		// The groups of processes list these; of the limits, those of the machine or the container as a whole are read.
		{"cat $(find /sys/fs/cgroup/ -name cgroup.procs 2>/dev/null) </dev/null | grep -q .", controlGroups, false},
		{"cat /sys/fs/cgroup/cgroup.procs || cat /sys/fs/cgroup/pids/cgroup.procs || cat /sys/fs/cgroup/unified/cgroup.procs", controlGroups, false},
		{"ls /sys/fs/cgroup || ls /sys/fs/cgroup/pids", controlGroups, false},
		{"for f in memory.max memory.high cpu.max pids.max memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us pids/pids.max; do " +
			"! test -e /sys/fs/cgroup/$f || cat /sys/fs/cgroup/$f || exit; done", true, true},
		{"readlink /proc/self/exe && echo x | cat /dev/stdin", true, true},
		{"if command -v bash; then bash -c 'cat <(echo x)'; fi", true, true},
		{"cat $SECRET", true, false},
		{"cat $NEIGHBOUR", true, false}, // of the reaper's own program, which may lie in a shared directory
		{"ls ${NEIGHBOUR%/*}", true, false},
		{"cat link", true, false},
		{"ls $BESIDE", true, false},
		{"cat /etc/shadow", os.Getuid() == 0, false},
		{"ls $HOME", true, true},
		{"echo x > $SECRET", false, false},
		{"echo x > link", false, false},
		{"truncate -s 0 $SECRET", false, false},
		{"rm $SECRET", false, false},
		{"mv $SECRET here", false, false},
		{"ln $SECRET here", false, false},
		{"mv own $BESIDE/own", false, false},
		{"touch $BESIDE/new", false, false},
		{"mkdir $BESIDE/new", false, false},
		{"ln -s own $BESIDE/new", false, false},
		{"mkfifo $BESIDE/new", false, false},
		{"touch $SHARED && rm $SHARED", false, false},
		{"touch ../new", false, false},
		{"mknod disk b 8 0", false, false},
		{"mknod zero c 1 5", false, false},
		{"cat /proc/$PPID/environ", false, false},
		{"kill -0 $PPID", false, false},
		{"kill -0 1", false, false},
		{"unshare -r true", false, false},
		{"mount -t tmpfs none .", false, false},
	} {
		for kind, want := range map[string]bool{"trusted": tt.trusted, "sandboxed": tt.sandboxed} {
			t.Run(kind+"/"+tt.script, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				rules := p.trusted()
				if kind == "sandboxed" {
					rules = p.sandboxed()
				}
				program := start(t, sandbox.Spec{Argv: sh(tt.script), Dir: p.work, Rules: rules, Env: []string{
					"SECRET=" + p.secret, "BESIDE=" + p.beside, "SHARED=" + shared, "NEIGHBOUR=" + neighbour.Name(),
				}})
				text, err := io.ReadAll(program.Stdout())
				if err != nil {
					t.Fatal(err)
				}
				exit := program.Wait()
				if got := exit.Code == 0; got != want {
					t.Errorf("exit %+v, want success %v: %s", exit, want, text)
				}
				if !want && strings.Contains(string(text), "canary") {
					t.Errorf("it was read: %s", text)
				}
				if secret, err := os.ReadFile(p.secret); string(secret) != "canary" {
					t.Errorf("the file beside is %q, %v", secret, err)
				}
				if entries, err := os.ReadDir(p.beside); len(entries) != 1 || err != nil {
					t.Errorf("beside are %v, %v", entries, err)
				}
			})
		}
	}
}

// An ordinary user is held as root is, and gets rid of a directory that the
// program left without its permissions.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("we are an ordinary user ourselves: TestFiles says it")
		return
	}
	p := newPlace(t)
	for path := p.work; path != "/tmp" && path != "/"; path = filepath.Dir(path) {
		os.Chmod(path, 0o777)
	}
	os.Chmod(filepath.Join(p.work, "own"), 0o666)
	argv := role("user", p.work, p.beside)
	bin := filepath.Join(p.work, "program") // the test's own directory is root's
	copyFile(t, argv[0], bin)
	argv[0] = bin
	cmd := exec.Command(argv[0], argv[1:]...)
	temp := filepath.Join(filepath.Dir(p.work), "temp")
	if err := os.Mkdir(temp, 0o777); err != nil {
		t.Fatal(err)
	}
	os.Chmod(temp, 0o777)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := cmd.CombinedOutput()
	if want := "own: 0\nbeside: 1\nescaped: -1\nreaper: 1\n"; string(text) != want || err != nil {
		t.Errorf("%v\n%s", err, cmp.Diff(want, string(text)))
	}
}

// A program has its own directory for temporary files and may read that of its
// agent's results, also within what is blocked, and nothing beside them.
func TestOwnDirectories(t *testing.T) {
	p := newPlace(t)
	temp, spill := filepath.Join(p.beside, "temp"), filepath.Join(p.beside, "kept")
	for _, dir := range []string{spill, filepath.Join(temp, "another")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "file"), "canary")
	}
	home := filepath.Join(p.beside, "a.home")
	for kind, rules := range map[string]sandbox.Rules{"trusted": p.trusted(), "sandboxed": p.sandboxed()} {
		rules.Temp, rules.Spill, rules.Blocked = temp, spill, []string{p.beside}
		rules.Home = home
		rules.ReadWrite = []string{filepath.Dir(p.work)} // what holds all of it
		for _, tt := range []struct {
			script string
			want   bool
		}{
			{"echo x > $TMPDIR/x && cat $TMPDIR/x && case $TMPDIR in " + temp + "/*) ;; *) exit 1; esac", true},
			{"cat " + spill + "/file", true},
			{"echo x > " + spill + "/file", false},
			{"ln -s own " + spill + "/new", false},
			{"cat " + temp + "/another/file", false},
			{"echo x > " + temp + "/another/file", false},
			{"touch " + temp + "/new", false},
			{"echo $0 > $HOME/x && chmod 700 $HOME/x && mkdir -p $GOCACHE && test $GOCACHE = " + home + "/.cache/go-build", true},
			{"test -s ~/x && test -d ~/.cache/go-build && test ~ = " + home, true}, // of the program before
			{"mv ~/.cache ~/elsewhere && mv ~/elsewhere ~/.cache", true},
			{"touch " + p.beside + "/new", false},
			{"mv " + home + " " + p.beside + "/other", false},
			{"rm -rf " + home, false},
			{"ln -s " + p.beside + "/secret ~/link && cat ~/link", false},
			{"rm ~/link", true},
		} {
			if text, exit := output(t, rules, p.work, sh(tt.script)...); (exit.Code == 0) != tt.want {
				t.Errorf("%s: %s: exit %+v: %s", kind, tt.script, exit, text)
			}
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestBlocked(t *testing.T) {
	p := newPlace(t)
	for _, dir := range []string{"a/b", "a/c"} {
		if err := os.MkdirAll(filepath.Join(p.work, dir), 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(p.work, dir, "file"), "canary")
	}
	os.Symlink(p.beside, filepath.Join(p.work, "away"))
	os.Symlink("b", filepath.Join(p.work, "a", "alias"))
	for _, tt := range []struct {
		script string
		want   bool
	}{
		{"cat a/c/file", true},
		{"echo x > a/c/file && touch a/c/new && rm a/c/new", true},
		{"echo x > own", true},
		{"ls . a", true},
		{"cat a/b/file", false},
		{"cat a/alias/file", false},
		{"echo x > a/b/file", false},
		{"rm a/b/file", false},
		{"touch a/b/new", false},
		{"mv a/b elsewhere", false},
		{"mv a elsewhere", false},
		{"touch new", false},
		{"touch a/new", false},
		{"cat away/secret", false},
		{"cat $SECRET", false},
		{"cat /etc/passwd && touch $TMPDIR/x", true},
	} {
		t.Run(tt.script, func(t *testing.T) {
			rules := p.trusted()
			rules.Blocked = []string{filepath.Join(p.work, "a", "b"), p.beside}
			t.Setenv("SECRET", p.secret)
			rules.Inherit = []string{"SECRET"}
			text, exit := output(t, rules, p.work, sh(tt.script)...)
			if got := exit.Code == 0; got != tt.want || !tt.want && strings.Contains(text, "canary") {
				t.Errorf("exit %+v, want success %v: %s", exit, tt.want, text)
			}
		})
	}
	rules := p.trusted()
	rules.Blocked = []string{filepath.Join(p.work, "a", "b")}
	got := start(t, sandbox.Spec{Argv: sh("true"), Rules: rules}).Notes()
	var want []string
	for _, dir := range []string{p.work, filepath.Join(p.work, "a")} {
		want = append(want, "nothing can be made, moved or removed directly in "+dir+", because something below it is blocked")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Something blocked below what is no directory any more keeps no program from starting.
func TestBlockedBelowNoDirectory(t *testing.T) {
	p := newPlace(t)
	rules := p.sandboxed()
	rules.Blocked = []string{filepath.Join(p.work, "own", "x"), filepath.Join(p.work, "link", "x"), filepath.Join(p.work, "none", "x")}
	if text, exit := output(t, rules, p.work, sh("cat own; echo new > own; cat own link")...); text != "ownnew\ncat: link: Permission denied\n" {
		t.Errorf("exit %+v: %s", exit, text)
	}
}

// A directory that was granted and has become a link grants nothing elsewhere.
func TestSwappedRoot(t *testing.T) {
	p := newPlace(t)
	granted := filepath.Join(p.work, "granted")
	if err := os.Symlink(p.beside, granted); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{granted, filepath.Join(granted, "secret")} {
		rules := p.sandboxed()
		rules.ReadWrite = []string{path}
		_, err := sandbox.Start(t.Context(), sandbox.Spec{Argv: sh("true"), Rules: rules})
		if err == nil || !strings.HasSuffix(err.Error(), path+" is, or leads through, a symbolic link") {
			t.Errorf("error %v", err)
		}
	}
}

// Each network is there, and can be reached without the rules.
func TestNetwork(t *testing.T) {
	p := newPlace(t)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	socket := filepath.Join(p.work, "s")
	unixStream, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer unixStream.Close()
	abstract, err := net.ListenPacket("unixgram", "@"+tag(t))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	for _, tt := range []struct {
		network, address string
		trusted          string
	}{
		{"tcp", tcp.Addr().String(), "dial: <nil>"},
		{"udp", udp.LocalAddr().String(), "dial: <nil>"},
		{"unix", socket, "dial: <nil>"},
		{"unixgram", abstract.LocalAddr().String(), "operation not permitted"}, // of another's making
	} {
		t.Run(tt.network, func(t *testing.T) {
			argv := role("dial", tt.network, tt.address)
			for _, c := range []struct {
				rules sandbox.Rules
				want  string
			}{{sandbox.Rules{}, "dial: <nil>"}, {p.trusted(), tt.trusted}, {p.sandboxed(), "socket: permission denied"}} {
				if text, _ := output(t, c.rules, p.work, argv...); !strings.HasSuffix(strings.TrimSpace(text), c.want) {
					t.Errorf("%q, want %q", text, c.want)
				}
			}
		})
	}
	text, _ := output(t, p.sandboxed(), p.work, role("pairs")...)
	if want := "<nil>\n<nil>\npermission denied\n"; text != want {
		t.Errorf("pairs of sockets: %q, want %q", text, want)
	}
}

// On a kernel without Landlock, what must be confined is not run, and the rest
// says that it is not.
func TestWithoutLandlock(t *testing.T) {
	const reason = "the kernel cannot confine programs: it has no Landlock, or it is switched off (Linux 6.2 or newer has what is needed)"
	for confinement, want := range map[string]string{
		"always":   "start echo: " + reason + "\n",
		"possible": "runs: " + reason + "\nhello\n",
	} {
		argv := role("bare", confinement, "echo", "hello")
		text, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if string(text) != want || err != nil {
			t.Errorf("%v\n%s", err, cmp.Diff(want, string(text)))
		}
	}
	if err := sandbox.Supported(); err != nil && !errors.Is(err, sandbox.ErrUnsupported) {
		t.Error(err)
	}
}
