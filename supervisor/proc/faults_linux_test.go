package proc_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/supervisor/proc"
)

// What keeps a process from starting, the error that says so, and that nothing
// of it is left.
func TestStartFaults(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	here := "/proc/self/exe"
	plain := file("plain", "text", 0o600)
	alien := file("alien", "\x7fELF\x02\x01\x01\x00 of another machine", 0o700)
	script := file("script", "#!/no/such/interpreter\n", 0o700)
	gone := filepath.Join(dir, "gone")
	huge := []string{here, strings.Repeat("x", 1<<18)}
	g := newGuard(t, nil)
	for _, c := range []struct {
		name string
		spec proc.Spec
		err  error
		text string
	}{
		{"no program", proc.Spec{}, nil, "start process: no program"},
		{"empty name", proc.Spec{Argv: []string{""}}, nil, "start process: no program"},
		{"ENOENT", proc.Spec{Argv: []string{gone}}, syscall.ENOENT, "start " + gone + ": there is no such program: no such file or directory"},
		{"interpreter", proc.Spec{Argv: []string{script}}, syscall.ENOENT, "start " + script + ": its interpreter is missing: no such file or directory"},
		{"PATH", proc.Spec{Argv: []string{"no-such-nexus-program"}}, nil, "start no-such-nexus-program: it is not on the PATH: executable file not found in $PATH"},
		{"EACCES", proc.Spec{Argv: []string{plain}}, syscall.EACCES, "start " + plain + ": it may not be executed: permission denied"},
		{"directory", proc.Spec{Argv: []string{dir}}, syscall.EACCES, "start " + dir + ": it may not be executed: permission denied"},
		{"ENOEXEC", proc.Spec{Argv: []string{alien}}, syscall.ENOEXEC, "start " + alien + ": it is no program for this machine: exec format error"},
		{"E2BIG", proc.Spec{Argv: huge}, syscall.E2BIG, fmt.Sprintf("start %s: its arguments and environment are too large (%d bytes): argument list too long", here, len(here)+1<<18+2)},
		{"no directory", proc.Spec{Argv: []string{here}, Dir: gone}, syscall.ENOENT, "start " + here + ": its working directory " + gone + ": no such file or directory"},
		{"a file as directory", proc.Spec{Argv: []string{here}, Dir: plain}, syscall.ENOTDIR, "start " + here + ": its working directory " + plain + ": not a directory"},
		{"limit beyond any machine", proc.Spec{Argv: []string{here}, Limits: proc.Limits{OpenFiles: 1 << 51}}, nil, "start " + here + ": it cannot be started: a limit of 2251799813685248: want 0 to 1125899906842624"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := descriptors(t)
			for range 3 {
				c.spec.Guard = g
				_, err := proc.Start(c.spec)
				if e, ok := errors.AsType[*proc.StartError](err); !ok || e.Error() != c.text || c.err != nil && !errors.Is(err, c.err) {
					t.Fatalf("error = %v\nwant    %s", err, c.text)
				}
			}
			deadline := time.Now().Add(patience)
			for descriptors(t) > before { // the guard looks at its children now and then
				if time.Now().After(deadline) {
					t.Fatalf("%d descriptors before, %d after", before, descriptors(t))
				}
			}
			alive(t, g)
		})
	}
}

// A directory that the user may not enter, or one above it, is named as the reason, and
// not the program. Root may enter all, so a thread without its capabilities looks.
func TestClosedDirectory(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	below := filepath.Join(closed, "below")
	if err := errors.Join(os.MkdirAll(below, 0o700), os.Chmod(closed, 0)); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(closed, 0o700) // else an ordinary user cannot remove it
	var helper sync.WaitGroup
	helper.Go(func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
			return
		}
		for _, dir := range []string{closed, below} {
			_, err := proc.Start(proc.Spec{Argv: []string{"/proc/self/exe"}, Dir: dir})
			want := "start /proc/self/exe: its working directory " + dir + " may not be entered: permission denied"
			if e, ok := errors.AsType[*proc.StartError](err); !ok || e.Dir != dir || e.Error() != want || !errors.Is(err, fs.ErrPermission) {
				t.Errorf("error = %v\nwant    %s", err, want)
			}
			if err := proc.CheckDir(dir); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("CheckDir(%s) = %v", dir, err)
			}
		}
	})
	helper.Wait()
}

// alive starts a process that works.
func alive(t *testing.T, g *proc.Guard) {
	t.Helper()
	p := start(proc.Spec{Env: role("echo"), Guard: g})
	if exit := p.Stop(t.Context(), nil); exit != (proc.Exit{}) {
		t.Errorf("another process: %+v", exit)
	}
	p.Discard()
}

// faults is a server that runs out of descriptors, at every step of a start.
// Each such start fails by name and takes nothing; then there are enough again.
func faults() {
	var limit unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	g, err := proc.NewGuard(proc.GuardOptions{Dir: os.Getenv("DIR")})
	if err != nil {
		panic(err)
	}
	defer g.Close()
	cycle := func() error {
		p, err := proc.Start(proc.Spec{Argv: []string{"/proc/self/exe"}, Env: role("echo"), Guard: g})
		if err == nil {
			p.Stop(killed(), nil)
			p.Discard()
		}
		return err
	}
	if err := cycle(); err != nil { // what is opened once
		panic(err)
	}
	count := func() int { // the guard opens some for a moment, now and then
		least := math.MaxInt
		for range 100 {
			entries, _ := os.ReadDir("/proc/self/fd")
			least = min(least, len(entries))
		}
		return least
	}
	free, err := os.Open("/dev/null") // the lowest that is free
	if err != nil {
		panic(err)
	}
	lowest := uint64(free.Fd())
	free.Close()
	before, failed := count(), 0
	for more := uint64(0); ; more++ {
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lowest + more, Max: limit.Max})
		err := cycle()
		unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
		if err == nil {
			break
		}
		failed++
		if !strings.Contains(err.Error(), "too many open files") {
			fmt.Println("unnamed:", err)
		}
		if n := count(); n != before {
			fmt.Printf("%d descriptors before, %d after the failure with %d free\n", before, n, more)
		}
	}
	if err := cycle(); err != nil {
		fmt.Println("afterwards:", err)
	}
	fmt.Println(failed >= 6)
}

func TestNoDescriptors(t *testing.T) {
	p := start(proc.Spec{Env: append(role("faults"), "DIR="+t.TempDir())})
	defer p.Stop(killed(), nil)
	said, err := io.ReadAll(p.Stdout())
	if string(said) != "true\n" || err != nil {
		t.Errorf("it said %s (%v, %+v)", said, err, p.Exit())
	}
}
