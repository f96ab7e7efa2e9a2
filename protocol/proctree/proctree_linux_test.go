package proctree_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

const stat = " S 1 2 2 0 -1 4194304 100 200 0 0 3 4 5 6 20 0 7 0 123 456 789"

// A process may call itself what it likes.
func TestStatOfNames(t *testing.T) {
	for _, name := range []string{"sh", "a b", ") R 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9", "(", ""} {
		got, ok := proctree.ParseStat([]byte("77 (" + name + ")" + stat))
		want := proctree.Stat{Name: name, State: 'S', Parent: 1, CPU: 180 * time.Millisecond, Waited: 110 * time.Millisecond, Threads: 7, Started: 123, Memory: 789 * int64(os.Getpagesize())}
		if got != want || !ok {
			t.Errorf("%q: %+v, %v\nwant %+v", name, got, ok, want)
		}
	}
	for _, broken := range []string{"", "12 (a", "12 (a)", "12 (a) S", "12 )a(" + stat} {
		if got, ok := proctree.ParseStat([]byte(broken)); ok {
			t.Errorf("%q is %+v", broken, got)
		}
	}
	for status, want := range map[string]int64{
		"Name:\tRssAnon:\nVmSize:\t 999 kB\nRssAnon:\t    10 kB\nRssFile:\t 500 kB\nRssShmem:\t 1 kB\nVmPTE:\t 7 kB\nVmSwap:\t 2 kB\nHugetlbPages:\t 100 kB\nThreads:\t2\n": 120 << 10,
		"Name:\tsh\nState:\tZ (zombie)\nThreads:\t1\n":      0,
		"Name:\tVmSize:\nState:\tZ (zombie)\nThreads:\t2\n": -1, // another thread tells
	} {
		got, told := proctree.ParseMemory([]byte(status))
		if !told {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d bytes, want %d", status, got, want)
		}
	}
}

func FuzzProcFiles(f *testing.F) {
	f.Add([]byte("1 (a) S 1 2 2 0 -1 4194304 100 200 0 0 3 4 5 6 20 0 7 0 1\nRssAnon:\t9999999999999999999 kB\nVmSwap: -1 kB"))
	f.Add([]byte("1 (a) S 1 2 2 0 -1 4194304 100 200 0 0 9999999999999999999 9999999999999999999 9999999999999999999 9999999999999999999 20 0 7 0 1 1 9999999999999999999"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, _ := proctree.ParseStat(data); s.Threads < 0 || s.Waited < 0 || s.CPU < s.Waited || s.Memory < 0 || s.Parent < 0 || s.Started < 0 {
			t.Errorf("%+v", s)
		}
		if n, _ := proctree.ParseMemory(data); n < 0 && len(data) < 1<<16 {
			t.Errorf("%d bytes", n)
		}
	})
}

// A lease on a file of a process in /proc delays nobody who reads it, and is told.
func TestLease(t *testing.T) {
	cmd, says, _ := start(t, "lessee", &syscall.SysProcAttr{Setpgid: true}, 2)
	pid := cmd.Process.Pid
	_, stat := proctree.ReadStat(pid)
	_, memory := proctree.Memory(pid)
	_, children := proctree.Children(pid)
	_, descendants := proctree.Descendants(os.Getpid())
	_, searched := proctree.SearchChildren()
	for name, err := range map[string]error{"stat": stat, "memory": memory, "children": children, "descendants": descendants, "search": searched} {
		if !proctree.Leased(err) {
			t.Errorf("%s: the lease is not told: %v", name, err)
		}
	}
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	allEnd(t, says)
}

// A process is there with its start time alone, and until it ends: what has its id
// later is another one.
func TestProcess(t *testing.T) {
	cmd, says, _ := start(t, "stay", nil, 1)
	p, err := proctree.Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	later := p
	later.Started++
	if !p.Lives() || later.Lives() {
		t.Errorf("it lives: %v, so does one that began later: %v", p.Lives(), later.Lives())
	}
	if got, err := proctree.Memory(p.PID); got < 1<<16 || err != nil {
		t.Errorf("it has %d bytes of memory, %v", got, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	allEnd(t, says)
	proctree.AwaitAny([]int{p.PID}, time.Now().Add(time.Minute)) // its files are closed before
	if s, err := proctree.ReadStat(p.PID); p.Lives() || err != nil || !s.Ended() {
		t.Errorf("nobody waited for it: %+v, %v, it lives: %v", s, err, p.Lives())
	}
	_ = cmd.Wait()
	if _, err := proctree.ReadStat(p.PID); p.Lives() || !proctree.Gone(err) {
		t.Errorf("it is gone: %v, it lives: %v", err, p.Lives())
	}
}

// A process whose first thread has ended lives with the others, and has memory and children.
func TestLeaderless(t *testing.T) {
	cmd, says, _ := start(t, "leaderless", nil, 2)
	pid := cmd.Process.Pid
	p, err := proctree.Find(pid)
	s, failed := proctree.ReadStat(pid)
	if err != nil || failed != nil || s.State != 'Z' || s.Ended() || !p.Lives() || proctree.HasEnded(pid) {
		t.Errorf("%+v, %v, %v: it has ended: %v", s, err, failed, proctree.HasEnded(pid))
	}
	if got, err := proctree.Memory(pid); got < 64<<20 || err != nil {
		t.Errorf("it has %d bytes of memory, %v", got, err)
	}
	children, err := proctree.Children(pid)
	if len(children) != 1 || err != nil {
		t.Fatalf("its children: %v, %v", children, err)
	}
	for _, pid := range []int{children[0], pid} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	allEnd(t, says)
}

// The page tables of a process count as its memory.
func TestMemoryOfPageTables(t *testing.T) {
	cmd, _, _ := start(t, "mapper", nil, 1)
	if got, err := proctree.Memory(cmd.Process.Pid); got < 8<<20 || err != nil {
		t.Errorf("a process with 2,048 page tables of 4 KiB has %d bytes, %v", got, err)
	}
}

// Kernels that keep no list of children are searched for them, to the same end.
func TestChildren(t *testing.T) {
	var want []int
	for range 3 {
		cmd, _, _ := start(t, "stay", nil, 1)
		want = append(want, cmd.Process.Pid)
	}
	slices.Sort(want)
	listed, err := proctree.Children(os.Getpid())
	searched, failed := proctree.SearchChildren()
	slices.Sort(listed)
	slices.Sort(searched)
	if !slices.Equal(listed, want) || !slices.Equal(searched, want) || err != nil || failed != nil {
		t.Errorf("listed %v, %v, searched %v, %v, want %v", listed, err, searched, failed, want)
	}
	if _, err := proctree.Children(1 << 30); !proctree.Gone(err) {
		t.Errorf("the children of nobody: %v", err)
	}
}

// A session of its own does not hide a process from those that it comes of.
func TestDescendants(t *testing.T) {
	cmd, says, _ := start(t, "parent", nil, 2)
	of, err := proctree.Descendants(cmd.Process.Pid)
	all, failed := proctree.Descendants(os.Getpid())
	if len(of) != 1 || err != nil || !slices.Equal(all, []int{cmd.Process.Pid, of[0]}) || failed != nil {
		t.Fatalf("%v, %v of it, %v, %v of us", of, err, all, failed)
	}
	both, err := proctree.Descendants(append(all, os.Getpid())...)
	if len(both) > 0 || err != nil {
		t.Errorf("%v, %v beside those that were given", both, err)
	}
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	allEnd(t, says)
}

// A child that the kernel passes over, as another one before it in the list is reaped while
// the list is read, is found by the next reading, however often that happens.
func TestReapOfAListThatChanges(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child := cmd.Process.Pid
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, child, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil { // it is a zombie now
		t.Fatal(err)
	}
	others := []int{1 << 22, 1<<22 + 1, 1<<22 + 2} // beyond any id: each reaped while the list was read
	list := func() ([]int, error) {
		if len(others) == 0 {
			return []int{child}, nil
		}
		first := others[0]
		others = others[1:]
		return []int{first}, nil
	}
	var reaped []int
	live, err := proctree.Reap(list, func(pid int) bool { return pid == child }, false, nil, func(pid int, _ time.Duration) { reaped = append(reaped, pid) })
	if len(live) > 0 || err != nil || !slices.Equal(reaped, []int{child}) {
		t.Errorf("live %v, reaped %v, %v; want %d reaped", live, reaped, err, child)
	}
	changing := func() ([]int, error) { others = append(others, 1); return []int{len(others)}, nil }
	if _, err := proctree.Reap(changing, func(int) bool { return false }, false, nil, nil); err == nil {
		t.Error("a list that never stays the same is no error")
	}
	_ = cmd.Process.Release() // it was waited for
}

// Orphans are reaped and killed with their groups, and children that are not
// wanted stay.
func TestReapChildren(t *testing.T) {
	_, says, lines := start(t, "subreaper", nil, 5)
	if want := []string{"2 <nil>", "true false <nil>", "[] <nil>", "<nil> false", "<nil> <nil> signal: killed"}; !slices.Equal(lines, want) {
		t.Errorf("it said %q, want %q", lines, want)
	}
	allEnd(t, says)
}

// A stop that a child tells its tracer, which its parent is then, is not its end: it is
// among those that live, in each look, and can be killed.
func TestReapTracedChildren(t *testing.T) {
	_, says, lines := start(t, "tracer", nil, 3)
	if want := []string{"2 <nil>", "2 <nil>", "[] <nil>"}; !slices.Equal(lines, want) {
		t.Errorf("it said %q, want %q", lines, want)
	}
	allEnd(t, says)
}

// Without descriptors nothing can be seen, which is not the same as that there is
// nothing: else what is left would be forgotten, and a server that lives be taken
// for a dead one.
func TestStarved(t *testing.T) {
	_, _, lines := start(t, "starved", nil, 5)
	for _, line := range lines[:4] {
		if !strings.HasPrefix(line, "true ") {
			t.Errorf("error %s", line)
		}
	}
	if lines[4] != "true false" {
		t.Errorf("it lives, and its child has ended: %s", lines[4])
	}
}
