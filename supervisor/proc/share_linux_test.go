package proc_test

import (
	"bufio"
	"io"
	"testing"

	"nexus.internal/supervisor/proc"
)

// What an agent and those that it created take together is bounded: who takes most ends,
// not the agent at the top, and time on the processors counts on after its end.
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
		if !own.Empty() || share.Empty() {
			t.Error("the members are not those that live")
		}
	}
	if _, err := boss.Write([]byte("hello\n")); err != nil {
		t.Error(err)
	}
	if line, err := bufio.NewReader(boss.Stdout()).ReadString('\n'); line != "hello\n" {
		t.Errorf("the agent at the top said %q, %v", line, err)
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
