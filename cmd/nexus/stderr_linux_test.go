package main_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// A stderr that is open and full, and that nobody reads, holds up no request and
// no end; who reads it at last is told how much is missing.
func TestUnreadStderr(t *testing.T) {
	t.Parallel() // most of it is waiting
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Stderr = w })
	for range 4000 { // a line each: more than a pipe takes and the server keeps
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
	for range 4000 {
		s.call("/", "list_agents", `{}`)
	}
	read := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(r) // what there is
		read <- string(all)
	}()
	s.end()
	w.Close()
	if all := <-read; !strings.Contains(all, `"message":"stderr was not read: log lines were lost","data":{"lost":`) || !strings.Contains(all, "server stopped") {
		t.Errorf("who reads it late is told %d bytes, and not what is missing", len(all))
	}
}
