package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/child/sandbox"
)

// profiled is a server that answers requests for its profiles.
func profiled(t *testing.T) *live {
	return newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--pprof") })
}

// profile asks for one.
func (s *live) profile(name string) (status int, body string) {
	s.Helper()
	answer, err := (&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(s.home, "run", "pprof"))
		},
		DisableKeepAlives: true,
	}}).Get("http://nexus/debug/pprof/" + name)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// Profiles are for the user of the server alone: not over the network, nor for the programs of
// an agent, nor without --pprof. A server that was killed leaves its socket behind.
func TestProfiles(t *testing.T) {
	t.Parallel()
	s := profiled(t)
	socket := filepath.Join(s.home, "run", "pprof")
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.again()
	if info, err := os.Lstat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v, want mode 0600", info, err)
	}
	for name, want := range map[string]string{
		"heap": "\x1f\x8b", "profile?seconds=0": "\x1f\x8b", "trace?seconds=1": "go 1.", "goroutine?debug=1": "goroutine profile: total ",
		"heap?gc=1&debug=1": "heap profile: ",
	} {
		if status, body := s.profile(name); status != http.StatusOK || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d, %.40q, want %q", name, status, body, want)
		}
	}
	if _, body := s.profile("mutex?debug=1"); !strings.Contains(body, "\nsampling period=10\n") {
		t.Errorf("no waits for mutexes are counted: %.100q", body)
	}
	// The second of the trace is a wait that ended: a server that has just started may have no other
	// of a millisecond.
	if _, body := s.profile("block?debug=1"); !strings.Contains(body, " @ 0x") {
		t.Errorf("no waits are counted: %.100q", body)
	}
	if status, body := s.profile("cmdline"); status != http.StatusNotFound {
		t.Errorf("a profile that there is not: %d, %.40q", status, body)
	}
	header := http.Header{"Authorization": {"Bearer " + s.key}}
	if status, body, err := request(http.MethodGet, s.url+"/debug/pprof/heap", header, ""); err != nil || status != http.StatusNotFound {
		t.Errorf("over the network: %d, %v, %.40q", status, err, body)
	}
	if sandbox.Supported() == nil {
		s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"a","cwd":%q,"preset":"sandboxed"}`, s.cwd))
		if answer := s.send("a", "run test -e "+socket+" || echo it is not there"); !strings.Contains(answer, "it is not there") {
			t.Errorf("a program of an agent sees the socket: %s", answer)
		}
	}
	s.end()
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is there without its server")
	}
	s.prepare = nil
	s.again()
	if _, err := os.Lstat(socket); err == nil {
		t.Error("there is a socket that was not asked for")
	}
	s.end()
}
