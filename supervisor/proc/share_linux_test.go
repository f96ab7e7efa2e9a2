package proc_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"nexus.internal/supervisor/proc"
)

// What an agent and those that it created take together is bounded: the agent at the top
// ends last, as time on the processors counts on after the others' end, and begins anew.
func TestShareOfTime(t *testing.T) {
	share := proc.NewShare("boss", proc.Limits{CPUSeconds: 1})
	boss := start(proc.Spec{Env: role("echo"), Shares: []*proc.Share{share}})
	defer boss.Discard()
	defer boss.Stop(killed(), nil)
	const want = "CPU limit 1 s of boss and the agents that it created"
	for range 2 { // the second has used nothing, and nothing is left for it
		own := proc.NewShare("worker", proc.Limits{CPUSeconds: 60})
		p := start(proc.Spec{Env: role("spinner"), Shares: []*proc.Share{own, share}})
		io.Copy(io.Discard, p.Stdout())
		if exit := p.Exit(); exit.Limit != want {
			t.Errorf("exit = %+v, want %s", exit, want)
		}
		if !own.Empty() {
			t.Error("a process that has ended is a member")
		}
	}
	io.Copy(io.Discard, boss.Stdout())
	if exit := boss.Exit(); exit.Limit != want {
		t.Errorf("the agent at the top ends with %+v, want %s", exit, want)
	}
	if !share.Empty() {
		t.Error("no member lives, and there is one")
	}
	again := start(proc.Spec{Env: role("echo"), Shares: []*proc.Share{share}})
	defer again.Discard()
	defer again.Stop(killed(), nil)
	if again.Look() {
		t.Error("the time of the agent's last process counts for this one")
	}
}

// What a process took counts on also if it has ended before it was looked at.
func TestShareOfShortTimes(t *testing.T) {
	share := proc.NewShare("boss", proc.Limits{CPUSeconds: 1})
	boss := start(proc.Spec{Env: role("echo"), Shares: []*proc.Share{share}})
	defer boss.Discard()
	defer boss.Stop(killed(), nil)
	worker := func(role []string) *proc.Process {
		return start(proc.Spec{Env: role, Shares: []*proc.Share{proc.NewShare("worker", proc.Limits{}), share}})
	}
	for range 5 {
		p := worker(append(role("burner"), "BURN=250ms"))
		p.Discard()
		p.Exit()
	}
	p := worker(role("echo"))
	defer p.Discard()
	defer p.Stop(killed(), nil)
	if !p.Look() {
		t.Error("there is time on the processors left for another process")
	}
}

// holder has 96 MiB of memory.
func holder() {
	memory := make([]byte, 96<<20)
	for at := 0; at < len(memory); at += 4096 {
		memory[at] = 1
	}
	fmt.Println("here")
	forever()
	runtime.KeepAlive(memory)
}

// What processes take together is bounded also where the kernel bounds each of them.
func TestShareInCgroups(t *testing.T) {
	limits := proc.Limits{MemoryBytes: 160 << 20, Processes: 1000}
	share := proc.NewShare("boss", limits)
	begin := func(shares ...*proc.Share) *proc.Process {
		c, err := proc.MakeCgroup(standInCgroup(t), limits)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Remove)
		p, err := c.Start(proc.Spec{Argv: []string{os.Args[0]}, Env: role("holder"), Limits: limits, Shares: shares})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			p.Stop(killed(), nil)
			p.Discard()
		})
		if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); line != "here\n" {
			t.Fatalf("it said %q, %v", line, err)
		}
		return p
	}
	boss := begin(share)
	if boss.Look() {
		t.Fatal("one process alone exceeds the limit")
	}
	worker := begin(proc.NewShare("worker", limits), share)
	if boss.Look() {
		t.Error("the agent at the top is ended")
	}
	if !worker.Look() {
		t.Error("two processes of 96 MiB do not exceed a limit of 160 MiB")
	}
	worker.Stop(killed(), nil)
	if exit := worker.Exit(); exit.Limit != "memory limit 160 MiB of boss and the agents that it created" {
		t.Errorf("exit = %+v", exit)
	}
}

// One that is too many ends when it starts, and those that work go on.
func TestShareOfProcesses(t *testing.T) {
	share := proc.NewShare("boss", proc.Limits{Processes: 20})
	boss := start(proc.Spec{Env: role("echo"), Shares: []*proc.Share{share}})
	defer boss.Discard()
	defer boss.Stop(killed(), nil)
	alive, ended := []*proc.Process{boss}, 0
	for range 12 {
		p := start(proc.Spec{Env: role("echo"), Shares: []*proc.Share{proc.NewShare("worker", proc.Limits{}), share}})
		defer p.Stop(killed(), nil)
		defer p.Discard()
		_, _ = p.Write([]byte("hello\n"))
		_, _ = bufio.NewReader(p.Stdout()).ReadString('\n') // its threads are there now
		if !p.Look() {
			alive = append(alive, p)
			continue
		}
		p.Discard()
		if exit := p.Exit(); exit.Limit != "process limit 20 of boss and the agents that it created" {
			t.Errorf("exit = %+v", exit)
		}
		ended++
	}
	if ended == 0 || len(alive) == 1 {
		t.Errorf("%d ended and %d live", ended, len(alive))
	}
}
