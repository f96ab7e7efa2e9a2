package agents

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds each wait: these programs take seconds to start.
const patience = 60 * time.Second

// frame is what is read of a frame of nexus-child.
type frame struct {
	Type      string
	ID        string
	SessionID string `json:"session_id"`
	RequestID string `json:"request_id"`
	OK        bool
	Cancelled bool
	Stop      string `json:"stop_reason"`
	Error     string
	Event     struct {
		Type, Delta, Result string
	}
	Program struct {
		Version, Resumed string
	}
}

// child is a nexus-child that runs an agent.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	frames chan frame
	ready  frame
	ended  chan struct{} // closed once it has ended
	n      int
}

// start starts one, in a home and a working directory of the test.
func (a agent) start(t *testing.T, dir string, env []string, more ...string) *child {
	t.Helper()
	program, _ := json.Marshal(object{"kind": a.name, "protocol": a.protocol, "command": append([]string{a.path(t)}, a.arguments...)})
	arguments := append([]string{"--program", string(program), "--approvals", "ask", "--cwd", filepath.Join(dir, "work")}, more...)
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		arguments = append(arguments, "--pass-env", name)
	}
	c := &child{t: t, cmd: exec.Command(filepath.Join(os.Getenv("NEXUS_BIN"), "nexus-child"), arguments...), frames: make(chan frame, 1024), ended: make(chan struct{})}
	c.cmd.Env = append([]string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}, env...)
	c.cmd.Stderr = os.Stderr
	c.stdin, _ = c.cmd.StdinPipe()
	stdout, _ := c.cmd.StdoutPipe()
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(c.frames)
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var f frame
			_ = json.Unmarshal(line, &f) // a frame of another shape is none that is waited for
			c.frames <- f
		}
	})
	go func() {
		defer close(c.ended)
		reading.Wait()
		_ = c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.stdin.Close()
		go func() {
			for range c.frames { // nobody wants it any more
			}
		}()
		<-c.ended
	})
	c.ready = c.until("ready", func(f frame) bool { return f.Type == "ready" })
	return c
}

func (c *child) send(m object) {
	line, _ := json.Marshal(m) // of strings
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		c.t.Fatal(err)
	}
}

// until waits for a frame.
func (c *child) until(what string, wanted func(frame) bool) frame {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case f, ok := <-c.frames:
			if !ok {
				c.t.Fatalf("nexus-child ended before %s", what)
			}
			if wanted(f) {
				return f
			}
		case <-timeout:
			c.t.Fatalf("no %s", what)
		}
	}
}

// prompt sends one and returns its id.
func (c *child) prompt(text string) string {
	c.n++
	id := fmt.Sprint(c.n)
	c.send(object{"type": "prompt", "id": id, "message": text})
	return id
}

// answer waits for the end of a turn, and returns its text and its response.
func (c *child) answer(id string) (text string, end frame) {
	c.t.Helper()
	end = c.until("the end of the turn", func(f frame) bool {
		if f.Event.Type == "text_delta" {
			text += f.Event.Delta
		}
		return f.Type == "response" && f.ID == id
	})
	return text, end
}

// say waits for a text of a turn.
func (c *child) say(mark string) {
	c.t.Helper()
	c.until(mark, func(f frame) bool { return strings.Contains(f.Event.Delta, mark) })
}

// descendants are the processes below one, by what they are.
func descendants(pid int) map[int]string {
	below := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	parents := map[int]int{}
	for _, e := range entries {
		var p, up int
		var name, state string
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // no process, or gone
		}
		if i := strings.LastIndex(string(stat), ") "); i > 0 {
			fmt.Sscan(string(stat[:i]), &p)
			fmt.Sscan(string(stat[i+2:]), &state, &up)
			parents[p], _ = up, name
		}
	}
	for p := range parents {
		for up := parents[p]; up > 1; up = parents[up] {
			if up == pid {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
				below[p] = strings.ReplaceAll(string(line), "\x00", " ")
				break
			}
		}
	}
	return below
}

// gone waits until none of the processes is there.
func gone(t *testing.T, all map[int]string) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for pid, what := range all {
		for syscall.Kill(pid, 0) == nil {
			if time.Now().After(end) {
				t.Errorf("process %d is left: %s", pid, what)
				break
			}
			time.Sleep(10 * time.Millisecond) // it is no child of ours, so that nobody tells us
		}
	}
}
