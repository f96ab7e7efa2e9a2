package main_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// A program that passes a signal on tells a process and its group both, as timeout(1)
// does: the two are one request to end. The server lets its turns finish, and the
// client cancels its turn before it ends.
func TestSignalsThatComeTogether(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	both := func(p *os.Process) { // two of one kind could be delivered as one
		t.Helper()
		if err := errors.Join(p.Signal(syscall.SIGINT), p.Signal(syscall.SIGTERM)); err != nil {
			t.Fatal(err)
		}
	}

	send := exec.CommandContext(t.Context(), filepath.Join(programs, "nexus-rpc"), "send", "a", "count to 1000", "--request-id", "r")
	send.Env = s.cmd.Env
	var said bytes.Buffer
	send.Stderr = &said
	answer, err := send.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := send.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := answer.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	both(send.Process)
	_, _ = io.Copy(io.Discard, answer)
	_ = send.Wait()
	if status := send.ProcessState.ExitCode(); status != 1 || !strings.Contains(said.String(), "the turn was cancelled") {
		t.Errorf("nexus-rpc send ended with %d: %s", status, said.String())
	}

	turn := s.sendAsync("a", "count to 20")
	eventually(t, "the turn runs", func() (struct{}, error) { return struct{}{}, s.busy("a") })
	both(s.cmd.Process)
	if answer := <-turn; !strings.HasSuffix(gjson.Get(answer, "result.content").Str, " 20") {
		t.Errorf("the turn was not let finish: %s", answer)
	}
	s.wait()
}
