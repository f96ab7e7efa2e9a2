package agents

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds each wait: twenty of these programs take long to start on two processors.
const patience = 2 * time.Minute

// frame is what is read of a frame of nexus-child.
type frame struct {
	Type      string
	ID        string
	RequestID string `json:"request_id"`
	OK        bool
	Cancelled bool
	Error     string
	Event     struct {
		Type, Delta string
	}
}

// process is a nexus-child that runs an agent.
type process struct {
	t      *testing.T
	stdin  io.WriteCloser
	frames chan frame
	n      int
}

// start starts one that works in a directory.
func (a agent) start(t *testing.T, dir string, env []string) *process {
	t.Helper()
	program, _ := json.Marshal(a.program(t)) // of strings
	arguments := []string{"--program", string(program), "--approvals", "ask", "--cwd", dir, "--session-dir", t.TempDir()}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		arguments = append(arguments, "--pass-env", name)
	}
	cmd := exec.Command(child(), arguments...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}, env...)
	cmd.Stderr = os.Stderr
	c := &process{t: t, frames: make(chan frame, 1024)}
	c.stdin, _ = cmd.StdinPipe()
	stdout, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
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
	t.Cleanup(func() {
		_ = c.stdin.Close()
		for range c.frames { // nobody wants it any more
		}
		reading.Wait()
		_ = cmd.Wait()
	})
	return c
}

func (c *process) send(m object) {
	line, _ := json.Marshal(m) // of strings
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		c.t.Fatal(err)
	}
}

// until waits for a frame.
func (c *process) until(what string, wanted func(frame) bool) frame {
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

// wait waits for a frame of a type.
func (c *process) wait(kind string) {
	c.t.Helper()
	c.until(kind, func(f frame) bool { return f.Type == kind })
}

// prompt sends one and returns its id.
func (c *process) prompt(text string) string {
	c.n++
	id := fmt.Sprint(c.n)
	c.send(object{"type": "prompt", "id": id, "message": text})
	return id
}

// answer waits for the end of a turn, and returns its text and its response.
func (c *process) answer(id string) (text string, end frame) {
	c.t.Helper()
	end = c.until("the end of the turn", func(f frame) bool {
		if f.Event.Type == "text_delta" {
			text += f.Event.Delta
		}
		return f.Type == "response" && f.ID == id
	})
	return text, end
}
