package proc_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/supervisor/proc"
)

// burner takes a processor for the time BURN. With HOLD it says that it has, and ends when
// it is written to.
func burner() {
	burn, err := time.ParseDuration(os.Getenv("BURN"))
	if err != nil {
		panic(err)
	}
	var used unix.Rusage
	for time.Duration(used.Utime.Nano()+used.Stime.Nano()) < burn {
		if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
			panic(err)
		}
	}
	if os.Getenv("HOLD") != "" {
		fmt.Println("burned")
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
}

// burners starts burners, one after the other, TIMES times in all. HOW it comes to know of
// their end: they are waited for, their end is ignored, or they are left, as each of them
// is started by a process that ends. With STAY it says that all have ended, and waits for
// the end of its stdin.
func burners() {
	how := os.Getenv("HOW")
	if how == "ignored" {
		signal.Ignore(syscall.SIGCHLD)
	}
	times, err := strconv.Atoi(os.Getenv("TIMES"))
	if err != nil {
		panic(err)
	}
	for range times {
		cmd := exec.Command(os.Args[0])
		if how == "left" {
			cmd = exec.Command("/bin/sh", "-c", `exec 4<&0; "$0" <&4 &`, os.Args[0])
		}
		cmd.Env = append(os.Environ(), "PROC_ROLE=burner")
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = os.Stdin, os.Stdout, []*os.File{w}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		w.Close()
		_ = cmd.Wait()       // fails where the end is ignored
		_, _ = io.ReadAll(r) // until the burner has ended
		r.Close()
	}
	if os.Getenv("STAY") != "" {
		fmt.Println("burned all")
		_, _ = io.ReadAll(os.Stdin)
	}
}

// What a process took stays counted when it has ended, once, whether it is waited for or not.
func TestCPUOfEnded(t *testing.T) {
	const burn, times = 80 * time.Millisecond, 4
	for _, how := range []string{"waited", "ignored", "left"} {
		t.Run(how, func(t *testing.T) {
			guard := newGuard(t, nil)
			proc.ForgoCgroups(guard)
			p := start(proc.Spec{Guard: guard, Env: append(role("burners"),
				"HOW="+how, "HOLD=yes", fmt.Sprint("BURN=", burn), fmt.Sprint("TIMES=", times))})
			defer p.Discard()
			defer p.Stop(killed(), nil)
			lines := bufio.NewReader(p.Stdout())
			last := time.Duration(0)
			for n := range times {
				if line, err := lines.ReadString('\n'); line != "burned\n" {
					t.Fatalf("it said %q, %v", line, err)
				}
				// The kernel tells times in ticks, of the user and of the system.
				least := time.Duration(n+1) * (burn - 20*time.Millisecond)
				got := proc.CPUOfTree(p)
				if got < least || got < last {
					t.Errorf("the tree took %v after %d processes of %v each, and %v before", got, n+1, burn, last)
				}
				last = got
				if _, err := p.Write([]byte("\n")); err != nil {
					t.Fatal(err)
				}
			}
			p.CloseStdin()
			io.Copy(io.Discard, lines)
			p.Exit()
			if all := p.Usage().CPU; how == "waited" && last > all+40*time.Millisecond {
				t.Errorf("the tree took %v, of which %v were measured", all, last)
			}
		})
	}
}

// What orphans took that came to us counts, also if they ended before they were looked at.
func TestCPUOfOrphans(t *testing.T) {
	guard := newGuard(t, nil)
	proc.ForgoCgroups(guard)
	p := start(proc.Spec{Guard: guard, Env: append(role("burners"), "HOW=left", "BURN=80ms", "TIMES=4", "STAY=yes")})
	defer p.Discard()
	defer p.Stop(killed(), nil)
	if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); line != "burned all\n" {
		t.Fatalf("it said %q, %v", line, err)
	}
	if got, want := proc.CPUOfTree(p), 300*time.Millisecond; got < want {
		t.Errorf("the tree took %v, want %v", got, want)
	}
}

// No process is counted twice, at whatever moment it ends. Readings are of 10 ms, of what a process took as such and in the system: one that ends may be found to have taken
// one or two of these less than it was read to have.
func TestCPUIsCountedOnce(t *testing.T) {
	p := start(proc.Spec{Env: append(role("burners"), "HOW=waited", "BURN=60ms", "TIMES=8")})
	defer p.Discard()
	last := time.Duration(0)
	for ended := false; !ended; {
		select {
		case <-p.Done():
			ended = true
		default:
			last = max(last, proc.CPUOfTree(p))
		}
	}
	if all := p.Usage().CPU; last == 0 || last > all+40*time.Millisecond {
		t.Errorf("the tree took %v, of which %v were measured", all, last)
	}
}
