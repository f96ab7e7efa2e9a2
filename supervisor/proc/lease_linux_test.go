package proc_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/supervisor/proc"
)

// lessee takes a lease on each of the files that LEASES names, and says what came of it.
// With OFFSPRING it starts some processes. Then it waits for the end of its stdin.
func lessee() {
	runtime.LockOSThread() // whose children they are
	for _, path := range filepath.SplitList(os.Getenv("LEASES")) {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		}
		fmt.Println(filepath.Base(path), err)
	}
	for range len(os.Getenv("OFFSPRING")) {
		offspring(false)
	}
	io.Copy(io.Discard, os.Stdin)
}

// takeLeases starts a lessee of files, and returns what it said of each. It ends with the
// test.
func takeLeases(t *testing.T, paths ...string) (said []string) {
	t.Helper()
	p := start(proc.Spec{Env: append(role("lessee"), "LEASES="+strings.Join(paths, string(filepath.ListSeparator)))})
	t.Cleanup(func() {
		p.Stop(killed(), nil)
		p.Discard()
	})
	lines := bufio.NewReader(p.Stdout())
	for range paths {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, strings.TrimSuffix(line, "\n"))
	}
	return said
}

// Nobody can have a lease on a file of a cgroup that the server needs: it would wait for
// the holder whenever it measures or kills. One that is faster than the server keeps the
// process from starting, and does not delay that.
func TestLeaseInCgroup(t *testing.T) {
	server, taken := standInCgroup(t), standInCgroup(t)
	limits := proc.Limits{MemoryBytes: 512 << 20, Processes: 40}
	c, err := proc.MakeCgroup(server, limits)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Remove()
	for _, name := range []string{"cgroup.kill", "cpu.stat", "memory.events", "pids.events"} {
		said := takeLeases(t, filepath.Join(server, "7", name), filepath.Join(taken, "7", name))
		if said[0] != name+" resource temporarily unavailable" || said[1] != name+" <nil>" {
			t.Errorf("leases while the server has a file, and without it: %q", said)
		}
		if _, err := proc.MakeCgroup(taken, limits); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("make one whose %s is leased: %v", name, err)
		}
		taken = standInCgroup(t)
	}
}

// Who keeps the server from measuring by leases on its files in /proc exceeds its limits by
// that, and its descendants count though they are hidden.
func TestLeaseInProc(t *testing.T) {
	const refused = "measurement refused (a lease on a file in /proc)"
	for _, c := range []struct {
		file, offspring, want string
	}{
		{"/proc/self/stat", "", refused},
		{"/proc/self/status", "", refused},
		{"/proc/thread-self/children", strings.Repeat("x", 20), "process limit 40"},
	} {
		t.Run(filepath.Base(c.file), func(t *testing.T) {
			p := start(proc.Spec{
				Env:    append(role("lessee"), "LEASES="+c.file, "OFFSPRING="+c.offspring),
				Limits: proc.Limits{Processes: 40}, Guard: newGuard(t, nil),
			})
			defer p.Stop(killed(), nil)
			said, _ := io.ReadAll(p.Stdout())
			if exit := p.Exit(); exit.Limit != c.want {
				t.Errorf("exit = %+v, want %s; it said %s", exit, c.want, said)
			}
		})
	}
}
