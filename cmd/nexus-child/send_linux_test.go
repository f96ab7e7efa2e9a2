package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// calls are the system calls that read and write, of a process so far (proc_pid_io(5)).
type calls struct{ reads, writes float64 }

func callsOf(t *testing.T, pid int) (c calls) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`syscr: (\d+)\nsyscw: (\d+)`).FindSubmatch(data)
	if found == nil {
		t.Fatalf("no counts in %q", data)
	}
	c.reads, _ = strconv.ParseFloat(string(found[1]), 64)
	c.writes, _ = strconv.ParseFloat(string(found[2]), 64)
	return c
}

// A short send is two reads of stdin, of which one finds nothing, two writes to stdout (the
// text at once, and all that closes the turn together) and two to the journal (the prompt, and
// the answer with the turn's end). A flood is a write for each frame, and none waits for
// another. The time of a busy machine may add some for pieces that are saved.
func TestSystemCallsOfASend(t *testing.T) {
	p := startChild(t, t.TempDir(), "--session", "s", "--durability", "os", "--session-updates", "--host-calls")
	sends := 0
	send := func(message string) {
		sends++
		p.send(fmt.Sprintf(`{"type":"prompt","id":"%d","message":"%s"}`, sends, message))
		p.want("command", "prompt")
	}
	count := func(n int, do func()) (reads, writes float64) {
		before := callsOf(t, p.cmd.Process.Pid)
		do()
		after := callsOf(t, p.cmd.Process.Pid)
		return (after.reads - before.reads) / float64(n), (after.writes - before.writes) / float64(n)
	}
	send("echo pong")
	reads, writes := count(100, func() {
		for range 100 {
			send("echo pong")
		}
	})
	t.Logf("a send: %.2f reads, %.2f writes", reads, writes)
	if reads > 2.5 || writes < 4 || writes > 4.5 {
		t.Errorf("a send: %.2f reads, want 2; %.2f writes, want 4", reads, writes)
	}
	const frames = 5000
	if reads, writes = count(frames, func() { send(fmt.Sprint("flood ", frames)) }); reads > 0.1 || writes < 1 || writes > 1.1 {
		t.Errorf("a frame: %.3f reads, want 0; %.3f writes, want 1", reads, writes)
	}
	p.stdin.Close()
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}
