package proc_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/proc"
)

// spinner takes a processor.
func spinner() {
	fmt.Println("here")
	for n := 0; ; n++ {
		if n < 0 {
			return
		}
	}
}

// blower speaks without an end.
func blower() {
	line := strings.Repeat("x", 1<<10) + "\n"
	for {
		if _, err := os.Stdout.WriteString(line); err != nil {
			return
		}
	}
}

// opener opens files until it may not, and says how far it got and what it heard.
func opener() {
	for n := 0; ; n++ {
		if _, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0); err != nil {
			fmt.Println(n > 30 && n < 64, err)
			return
		}
	}
}

// Who exceeds a limit is killed, with all that it started, and that alone; its
// exit names the limit. That of memory is tested in package stdio, with a program
// that no race detector has grown.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name    string
		role    string
		env     []string
		limits  proc.Limits
		unaided bool // no guard is needed
		want    string
	}{
		{"processes", "nest", []string{"HOW=brood brood/setsid brood fledge brood brood"}, proc.Limits{Processes: 30}, false, "process limit 30"},
		{"CPU", "spinner", nil, proc.Limits{CPUSeconds: 1}, true, "CPU limit 1 s"},
		{"CPU of children that nobody waits for", "burners", []string{"HOW=ignored", "BURN=400ms", "TIMES=30"}, proc.Limits{CPUSeconds: 1}, true, "CPU limit 1 s"},
		{"output", "blower", nil, proc.Limits{OutputBytesPerSecond: 1000}, true, "output limit 1000 bytes/s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pipe, gone := nestPipe(t, t.TempDir())
			s := proc.Spec{Env: append(append(role(c.role), "NEST="+pipe), c.env...), Limits: c.limits}
			if !c.unaided {
				s.Guard = newGuard(t, nil)
			}
			p, other := start(s), start(proc.Spec{Env: role("echo"), Limits: c.limits, Guard: s.Guard})
			defer other.Discard()
			defer other.Stop(killed(), nil)
			defer p.Stop(killed(), nil)
			io.Copy(io.Discard, p.Stdout())
			if exit := p.Exit(); exit.Limit != c.want {
				t.Errorf("exit = %+v, want %s", exit, c.want)
			}
			if c.role == "nest" {
				if err := gone(patience); err != nil {
					t.Error(err)
				}
			}
			if _, err := other.Write([]byte("hello\n")); err != nil {
				t.Error(err)
			}
			if line, err := bufio.NewReader(other.Stdout()).ReadString('\n'); line != "hello\n" {
				t.Errorf("another process said %q, %v", line, err)
			}
		})
	}
}

// Where the kernel refuses a file, nobody is killed.
func TestLimitOfFiles(t *testing.T) {
	p := start(proc.Spec{Env: role("opener"), Limits: proc.Limits{OpenFiles: 64}})
	said, err := io.ReadAll(p.Stdout())
	if string(said) != "true too many open files\n" || err != nil {
		t.Errorf("it said %q, %v", said, err)
	}
	if exit := p.Exit(); exit != (proc.Exit{}) {
		t.Errorf("exit = %+v", exit)
	}
}

// A process within its limits is left alone, and one that ends by itself is not
// said to have exceeded them.
func TestWithinLimits(t *testing.T) {
	limits := proc.Limits{MemoryBytes: 64 << 30, Processes: 100, OpenFiles: 100, CPUSeconds: 60, OutputBytesPerSecond: 1 << 20}
	p := start(proc.Spec{Env: role("echo"), Limits: limits})
	if exit := p.Stop(t.Context(), nil); exit != (proc.Exit{}) {
		t.Errorf("exit = %+v", exit)
	}
	p.Discard()
}

// Ten seconds' worth may come at once, and a few MiB in any case.
func TestOutputRate(t *testing.T) {
	for limit, want := range map[uint64]ratelimit.Rate{
		1 << 20: {PerSecond: 1 << 20, Burst: 10 << 20},
		1:       {PerSecond: 1, Burst: 4 << 20},
	} {
		if got := proc.OutputRate(proc.Limits{OutputBytesPerSecond: limit}); got != want {
			t.Errorf("%d bytes a second: %+v, want %+v", limit, got, want)
		}
	}
}
