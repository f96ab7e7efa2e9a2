package proc_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"nexus.internal/supervisor/proc"
)

// What a process takes is seen while it lives, and what it took afterwards.
func TestUsage(t *testing.T) {
	p := start(proc.Spec{Env: role("spinner")})
	defer p.Discard()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	var u proc.Usage
	for began := time.Now(); u.CPU < 50*time.Millisecond; <-look.C {
		if u = p.Usage(); time.Since(began) > patience {
			t.Fatalf("a spinning process takes %+v", u)
		}
	}
	if u.MemoryBytes < 100<<10 {
		t.Errorf("a running process takes %d bytes", u.MemoryBytes)
	}
	p.Stop(killed(), nil)
	if after := p.Usage(); after.CPU < u.CPU || after.MemoryBytes != 0 {
		t.Errorf("a process that is gone took %+v, and %+v before", after, u)
	}
}

// A process that does not run is not read again, one that runs is.
func TestUsageOfOneThatDoesNotRun(t *testing.T) {
	p := start(proc.Spec{Env: role("echo")})
	defer p.Discard()
	defer p.Stop(killed(), nil)
	var still proc.Usage
	read := func(times int) (bytes int) {
		before := readSoFar(t)
		for range times {
			still = p.Usage()
		}
		return readSoFar(t) - before
	}
	for began := time.Now(); still.MemoryBytes < 100<<10; still = p.Usage() { // it begins
		if time.Since(began) > patience {
			t.Fatalf("it takes %+v", still)
		}
	}
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const stat = 100                             // bytes at least, of /proc/PID/stat
	for began := time.Now(); read(1) > stat*2; { // it is on its way to stop
		if time.Since(began) > patience {
			t.Fatal("it does not stop")
		}
	}
	if own, n := read(0), read(100); n > own+10*stat {
		t.Errorf("looking 100 times reads %d bytes, and %d not looking", n, own)
	}
	if err := syscall.Kill(p.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// readSoFar is how many bytes this process has read.
func readSoFar(t *testing.T) (n int) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err == nil {
		_, err = fmt.Sscanf(string(data), "rchar: %d", &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Where the machine has no memory left, the kernel ends an agent before its server.
func TestOutOfMemoryScore(t *testing.T) {
	score := func(pid int) (n int) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err == nil {
			_, err = fmt.Sscan(string(data), &n)
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	p := start(proc.Spec{Env: role("echo")})
	defer p.Discard()
	defer p.Stop(killed(), nil)
	own := score(os.Getpid())
	if got, want := score(p.PID()), own+(1000-own)/2; got != want {
		t.Errorf("its score is %d, want %d: ours is %d", got, want, own)
	}
}
