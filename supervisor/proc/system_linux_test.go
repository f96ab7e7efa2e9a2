package proc_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/supervisor/proc"
)

// poor is a server whose machine bounds what the tag is made of.
func poor() {
	unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: 1000, Max: 1000})
	g, err := proc.NewGuard(proc.GuardOptions{Dir: os.Getenv("DIR")})
	if err != nil {
		panic(err)
	}
	p := start(proc.Spec{Env: role("echo"), Guard: g})
	fmt.Println(p.Stop(killed(), nil).Signal, g.Mechanisms(), watchdogOf(os.Getpid()), g.Close())
}

// Where there is nothing to mark processes with, that is said, and they start.
func TestNoTag(t *testing.T) {
	p := start(proc.Spec{Env: append(role("poor"), "DIR="+t.TempDir())})
	defer p.Discard()
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	want := "killed pdeathsig (no tag, nor what rests on it: RLIMIT_LOCKS is bounded to 1000) 0 <nil>\n"
	if line != want || err != nil {
		t.Errorf("it said %q, %v\nwant    %q", line, err, want)
	}
	p.Stop(killed(), nil)
}

// A directory that cannot be made is an error, at once.
func TestGuardNeedsDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := proc.NewGuard(proc.GuardOptions{Dir: filepath.Join(file, "trees")}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("error = %v", err)
	}
}

// Where the kernel has cgroups for us, each process is in one of its own, and
// no directory is left of it; others cannot lease the files by which it is ended and
// measured. Where the kernel has none, the reason is told.
func TestCgroups(t *testing.T) {
	g, err := proc.NewGuard(proc.GuardOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	pipe, gone := nestPipe(t, t.TempDir())
	p, _ := nestling(t, proc.Spec{Env: nestEnv(pipe, "storm/setsid"), Guard: g})
	data, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	in := strings.Contains(string(data), "/nexus-")
	if m := g.Mechanisms(); m.CgroupKill != in || !in && !strings.Contains(m.String(), "no cgroups: ") {
		t.Errorf("means %s, but the process is in %s", m, data)
	}
	dirs := func() (found []string) {
		for line := range strings.Lines(string(data)) {
			if _, path, _ := strings.Cut(strings.TrimSpace(line), "0::"); strings.Contains(path, "/nexus-") {
				here, _ := filepath.Glob("/sys/fs/cgroup" + path + "*")
				below, _ := filepath.Glob("/sys/fs/cgroup/*" + path + "*")
				found = append(append(found, here...), below...)
			}
		}
		return found
	}
	for _, dir := range dirs() {
		said := takeLeases(t, filepath.Join(dir, "cpu.stat"), filepath.Join(dir, "cgroup.kill"), filepath.Join(dir, "../cgroup.kill"), filepath.Join(dir, "cgroup.procs"))
		for _, line := range said[:3] {
			if !strings.HasSuffix(line, " resource temporarily unavailable") {
				t.Errorf("another process can take leases in %s: %q", dir, said)
			}
		}
	}
	p.Stop(killed(), nil)
	if err := gone(patience); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if left := dirs(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// standInCgroup makes a directory that stands for a server's cgroup, with one for the limits
// of a process. It has the files that the kernel makes.
func standInCgroup(t *testing.T) string {
	t.Helper()
	server := t.TempDir()
	dir := filepath.Join(server, "7")
	err := os.Mkdir(dir, 0o700)
	for _, name := range []string{"cgroup.kill", "cpu.stat", "memory.events", "memory.max", "memory.oom.group", "pids.events", "pids.max"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// What the kernel is told of limits, and what it tells of them, in files. That it killed is
// known when these are gone.
func TestLimitsInCgroup(t *testing.T) {
	server := standInCgroup(t)
	limits := proc.Limits{MemoryBytes: 512 << 20, Processes: 40, CPUSeconds: 60}
	c, err := proc.MakeCgroup(server, limits)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(server, "7")
	for name, want := range map[string]string{"memory.max": "536870912", "memory.oom.group": "1", "pids.max": "40"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want || err != nil {
			t.Errorf("%s = %q, %v, want %s", name, got, err, want)
		}
	}
	for _, step := range []struct {
		file, content string
		exceeded      string
		killed        bool
	}{
		{"pids.events", "max 0\n", "", false},
		{"memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 0\noom_group_kill 0\n", "", false},
		{"cpu.stat", "usage_usec 60000000\nuser_usec 1\n", "", false},
		{"cpu.stat", "usage_usec 60000001\nuser_usec 1\n", "CPU limit 60 s", false},
		{"pids.events", "max 3\n", "process limit 40", false},
		{"memory.events", "oom 1\noom_kill 2\n", "process limit 40", true},
	} {
		if err := os.WriteFile(filepath.Join(dir, step.file), []byte(step.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := c.Exceeded(limits); got != step.exceeded || c.OutOfMemory() != step.killed {
			t.Errorf("%s %q: exceeded %q, killed for memory %v", step.file, step.content, got, c.OutOfMemory())
		}
	}
	c.Remove()
	if err := os.RemoveAll(dir); err != nil || !c.OutOfMemory() {
		t.Errorf("once it is removed (%v), it was killed for memory: %v", err, c.OutOfMemory())
	}
}

func TestMeans(t *testing.T) {
	for _, c := range []struct {
		mechanisms proc.Mechanisms
		want       string
	}{
		{proc.Mechanisms{}, "none"},
		{proc.Mechanisms{Pdeathsig: true, Tag: true, CgroupKill: true, CgroupMemory: true, CgroupTasks: true}, "pdeathsig tag cgroup.kill memory.max pids.max"},
		{proc.Mechanisms{Watchdog: true, Subreaper: true, Reasons: []string{"one", "two"}}, "subreaper watchdog (one; two)"},
	} {
		if got := c.mechanisms.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
