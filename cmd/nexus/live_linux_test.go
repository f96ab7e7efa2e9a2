package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// live is a real server with a home of its own.
type live struct {
	*testing.T
	home, cwd string
	prepare   func(*exec.Cmd) // adapts the command of the server; may be nil
	cmd       *exec.Cmd
	log       *bytes.Buffer // to be read when the server has ended
	url, key  string
}

// newLive starts a server without agents; prepare may be nil.
func newLive(t *testing.T, prepare func(*exec.Cmd)) *live {
	t.Helper()
	s := &live{T: t, home: filepath.Join(t.TempDir(), "home"), cwd: t.TempDir(), log: &bytes.Buffer{}, prepare: prepare}
	if err := os.Mkdir(s.home, 0o700); err != nil {
		t.Fatal(err)
	}
	s.again()
	return s
}

// eventually asks until there is an answer.
func eventually[T any](t *testing.T, what string, ask func() (T, error)) T {
	t.Helper()
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for began := time.Now(); ; <-pause.C {
		got, err := ask()
		if err == nil {
			return got
		}
		if time.Since(began) > patience {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// again starts a server in the same home.
func (s *live) again() {
	s.Helper()
	cmd := exec.Command(filepath.Join(programs, "nexus"), "serve", "0")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "NEXUS_HOME=" + s.home, "GORACE=atexit_sleep_ms=0",
	}
	cmd.Stderr = s.log
	if s.prepare != nil {
		s.prepare(cmd)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.cmd = cmd
	s.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			said := slices.Collect(strings.Lines(s.log.String()))
			said = slices.DeleteFunc(said, func(line string) bool {
				return strings.Contains(line, `"message":"http request"`) && strings.Contains(line, `"status":"success"`) // thousands, of those that wait
			})
			s.Logf("server log:\n%s", strings.Join(said, ""))
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "nexus listening on "); ok {
			s.url = url
		}
		if path, ok := strings.CutPrefix(lines.Text(), "key file: "); ok {
			key, err := os.ReadFile(path)
			if err != nil {
				s.Fatal(err)
			}
			s.key = strings.TrimSpace(string(key))
			return
		}
	}
	s.Fatal("nexus serve did not start")
}

func (s *live) end() {
	s.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	s.wait()
}

// wait waits for a server that was asked to end.
func (s *live) wait() {
	s.Helper()
	stuck := time.AfterFunc(patience, func() { _ = s.cmd.Process.Signal(syscall.SIGABRT) })
	defer stuck.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.Errorf("the server ended with %v\n%s", err, s.log)
	}
}

func (s *live) call(path, method, params string) string {
	_, answer, err := request(http.MethodPost, s.url+path, http.Header{"Authorization": {"Bearer " + s.key}},
		fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	if err != nil {
		s.Errorf("%s: %v", method, err)
	}
	return answer
}

func (s *live) send(agent, content string) string {
	return s.call("/agent/"+agent, "send", fmt.Sprintf(`{"content":%q}`, content))
}

// busy says that the agent is not, or nothing if a turn of it runs.
func (s *live) busy(agent string) error {
	for _, a := range gjson.Get(s.call("/", "list_agents", `{}`), "result.agents").Array() {
		if a.Get("agent_id").Str == agent && a.Get("state").Str != "busy" {
			return fmt.Errorf("it is %s", a.Get("state").Str)
		}
	}
	return nil
}

func (s *live) pid(agent string) int {
	s.Helper()
	for _, a := range gjson.Get(s.call("/", "list_agents", `{}`), "result.agents").Array() {
		if a.Get("agent_id").Str == agent {
			return int(a.Get("pid").Int())
		}
	}
	s.Fatalf("no agent %s", agent)
	return 0
}
