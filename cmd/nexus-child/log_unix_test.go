//go:build unix

package main

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// stuffed is a pipe that is full and that nobody reads.
func stuffed(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	piece := make([]byte, 1<<10)
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if failed := raw.Write(func(fd uintptr) bool {
		for err == nil { // Go makes its pipes non-blocking
			_, err = unix.Write(int(fd), piece)
		}
		return true
	}); failed != nil || err != unix.EAGAIN {
		t.Fatal(failed, err)
	}
	return w
}

// Turns that fail log each a line; with a stderr that is full they go on, and
// aborts and shutdown too.
func TestTurnsBehindAFullStderr(t *testing.T) {
	for _, end := range []string{"shutdown", "eof"} {
		t.Run(end, func(t *testing.T) {
			p := command(t, t.TempDir(), nil)
			p.cmd.Stderr = stuffed(t)
			p.start()
			for i := range 3 {
				p.send(fmt.Sprintf(`{"type":"prompt","id":"%d","message":"fail"}`, i))
				p.want("command", "prompt")
			}
			p.send(`{"type":"prompt","id":"h","message":"sleep 3600"}`)
			p.want("event.type", "toolcall_input")
			p.send(`{"type":"abort","id":"a"}`)
			p.want("id", "a")
			if end == "shutdown" {
				p.send(`{"type":"shutdown"}`)
			}
			p.stdin.Close()
			if status := p.wait(); status != 0 {
				t.Errorf("exit status %d", status)
			}
		})
	}
}

// What a failed start says reaches a stderr that is read, and no other holds it
// up.
func TestAFailedStartBehindAFullStderr(t *testing.T) {
	p := command(t, t.TempDir(), nil, "--nonsense")
	p.cmd.Stderr = stuffed(t)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(); status != 2 {
		t.Errorf("exit status %d", status)
	}
}

// A child whose parent is gone ends, though nobody reads what it logs either.
func TestStdoutAndStderrWithoutAReader(t *testing.T) {
	p := command(t, t.TempDir(), nil)
	p.cmd.Stderr = stuffed(t)
	p.start()
	p.send(`{"type":"prompt","id":"1","message":"sleep 3600"}`)
	p.want("event.type", "toolcall_input")
	p.stdout.Close()
	if status := p.wait(); status != 1 {
		t.Errorf("exit status %d", status)
	}
}
