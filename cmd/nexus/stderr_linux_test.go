package main_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"
)

// A stderr that is open and full, and that nobody reads, holds up no request and
// no end; a late reader gets a line that says how many lines are missing.
func TestUnreadStderr(t *testing.T) {
	t.Parallel() // most of it is waiting
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	s := newLive(t, func(cmd *exec.Cmd) {
		if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = w
	})
	const unreadLines = 2500 // one a request: more than the pipe takes and the server keeps and writes
	for range unreadLines {
		if answer := s.call("/", "list_agents", `{}`); !gjson.Get(answer, "result.agents").Exists() {
			t.Fatalf("answer %s", answer)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.wait()
	w.Close()
	told, err := io.ReadAll(r)
	if err != nil || !strings.HasPrefix(string(told), `{"level":`) {
		t.Errorf("%v, %.200s", err, told)
	}

	if r, w, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.again()
	for range unreadLines {
		s.call("/", "list_agents", `{}`)
	}
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	for last := ""; !strings.Contains(last, `"message":"stderr was not read: log lines were lost","data":{"lost":`); last = lines.Text() {
		if !lines.Scan() {
			t.Fatalf("the late reader gets no line about the lost ones; the last line is %q, %v", last, lines.Err())
		}
	}
	ended := make(chan string, 1)
	go func() {
		last := ""
		for lines.Scan() {
			last = lines.Text()
		}
		ended <- last
	}()
	s.end()
	w.Close()
	if last := <-ended; !strings.Contains(last, "server stopped") {
		t.Errorf("the last line of a server whose stderr is read is %q", last)
	}
}
