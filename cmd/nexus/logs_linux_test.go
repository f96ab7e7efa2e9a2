package main_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"

	"nexus.internal/cmd/internal/sessionlog"
)

// loggedOf are what the user said to an agent, by its log, and the status of that session.
func loggedOf(logs, agent string) (said []string, status string, err error) {
	a, err := sessionlog.Open(logs)
	if err != nil {
		return nil, "", err
	}
	defer a.Close()
	s, err := a.Find(agent)
	if err != nil {
		return nil, "", err
	}
	err = a.Entries(context.Background(), s.ID, func(e sessionlog.Entry) error {
		if e.Kind == "user" {
			said = append(said, e.Text)
		}
		return nil
	})
	return said, s.Status, err
}

// A server that is killed in the midst of its work leaves logs that can be read, and the next one
// goes on with them: nothing is logged twice, nothing is missing.
func TestLogsAfterKill(t *testing.T) {
	t.Parallel()
	logs := filepath.Join(t.TempDir(), "logs")
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--log-dir", logs, "--raw-log") })
	var want []string
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"w","if_exists":"use","cwd":%q}`, s.cwd))
		s.call("/", "create_agent", `{"agent_id":".t"}`)
		for n := range 20 {
			text := fmt.Sprintf("say %d of %d", n, round)
			want = append(want, text)
			if answer := s.send("w", text); gjson.Get(answer, "error").Exists() {
				t.Fatal(answer)
			}
		}
		s.send(".t", "remember me")
		eventually(t, "the temporary agent is logged", func() (int, error) {
			if said, _, err := loggedOf(logs, ".t"); err != nil || len(said) != 1 {
				return 0, fmt.Errorf("%v, %w", said, err)
			}
			return 0, nil
		})
		cut := make(chan error)
		for _, agent := range []string{".t", "w"} { // the last one that was used is kept
			go func() {
				_, _, err := request(http.MethodPost, s.url+"/agent/"+agent, http.Header{"Authorization": {"Bearer " + s.key}},
					`{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"count to 4000"}}`)
				cut <- err
			}()
			eventually(t, "a turn runs", func() (int, error) { return 0, s.busy(agent) })
		}
		want = append(want, "count to 4000")
		for path, before := range map[string]int{"sessions/w.jsonl": round, "run/temp/.t.jsonl": 0} {
			eventually(t, "it has said something", func() (int, error) {
				text, err := os.ReadFile(filepath.Join(s.home, path))
				if err == nil && strings.Count(string(text), "count to 4000") <= before {
					err = errors.New("nothing yet")
				}
				return 0, err
			})
		}
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait() // it was killed
		for range 2 {
			if err := <-cut; err == nil {
				t.Fatal("a turn ended before the server did")
			}
		}
		if _, _, err := loggedOf(logs, "w"); err != nil {
			t.Fatalf("after a kill: %v", err)
		}
		if round%2 == 1 { // without a server, nexus logs adds what it finds
			out, err := exec.Command(filepath.Join(programs, "nexus"), "logs", "show", "w", "--home", s.home, "--log-dir", logs).CombinedOutput()
			if err != nil || strings.Count(string(out), "    count to 4000\n") != round+1 {
				t.Errorf("logs show after a kill: %v, %s", err, out)
			}
		}
		s.again()
		// What it was asked last was lost: its session was removed before it was read.
		said, status, err := loggedOf(logs, ".t")
		if diff := cmp.Diff([]string{"remember me", "count to 4000"}, said); err != nil || status != "orphaned" || diff != "" {
			t.Errorf("a temporary agent of a killed server is %s, %v, what was said (-want +got):\n%s", status, err, diff)
		}
	}
	s.send("w", "the end")
	want = append(want, "the end")
	s.end()
	said, status, err := loggedOf(logs, "w")
	if diff := cmp.Diff(want, said); err != nil || diff != "" || status != "saved" {
		t.Errorf("%s, %v, what was said (-want +got):\n%s", status, err, diff)
	}
	files, err := filepath.Glob(filepath.Join(logs, "*_w_*", "*"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), "\x00") {
			t.Errorf("%s: %v, or it has a hole", file, err)
		}
		if strings.HasSuffix(file, ".md") && strings.Count(string(text), "\n## user") != len(want) {
			t.Errorf("%s has %d prompts, want %d", file, strings.Count(string(text), "\n## user"), len(want))
		}
		if strings.HasSuffix(file, ".jsonl") && !gjson.ValidBytes([]byte("["+strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ",")+"]")) {
			t.Errorf("%s has a line that is no JSON", file)
		}
	}
}

// A full disk of the logs is told, keeps no agent from its work, and what was not logged is
// logged once there is room: also of an agent that is gone by then.
func TestLogsOnFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 && os.Getenv(inNamespace) == "" {
		asRootOfItsOwn(t)
		return
	}
	logs := t.TempDir()
	if err := unix.Mount("nexus-test", logs, "tmpfs", 0, "size=12m,mode=700"); err != nil {
		t.Fatalf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(logs, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := newLive(t, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = nil // in a user namespace there is nobody else
		cmd.Args = append(cmd.Args, "--log-dir", logs, "--raw-log")
	})
	s.call("/", "create_agent", `{"agent_id":"w"}`)
	s.call("/", "create_agent", `{"agent_id":".t"}`)
	warned := func() string {
		_, answer, err := request(http.MethodGet, s.url+"/readyz", http.Header{"Authorization": {"Bearer " + s.key}}, "")
		if err != nil {
			t.Fatal(err)
		}
		return gjson.Get(answer, "warnings").String()
	}
	s.send("w", "say first")
	s.send(".t", "say first")
	filler := filepath.Join(logs, "filler")
	if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	long := "say " + strings.Repeat("x", 16<<10)
	want := []string{"say first"}
	for range 5 {
		want = append(want, long)
		for _, agent := range []string{".t", "w"} {
			if answer := s.send(agent, long); gjson.Get(answer, "result.stop_reason").Str != "completed" {
				t.Fatalf("a full disk of the logs is no matter of an agent: %s", answer)
			}
		}
	}
	eventually(t, "the full disk is told", func() (int, error) {
		if text := warned(); !strings.Contains(text, "sessions are not logged in "+logs) || !strings.Contains(text, "full") && !strings.Contains(text, "no space left") {
			return 0, fmt.Errorf("warnings: %s", text)
		}
		return 0, nil
	})
	for _, args := range [][]string{{"list"}, {"search", "first"}} { // what is logged can be read
		out, err := exec.Command(filepath.Join(programs, "nexus"), append([]string{"logs", "--home", s.home, "--log-dir", logs}, args...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), " w ") {
			t.Errorf("logs %s on a full disk: %v: %s", args[0], err, out)
		}
	}
	s.call("/", "destroy_agent", `{"agent_id":".t"}`)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for agent, status := range map[string]string{"w": "active", ".t": "destroyed"} {
		eventually(t, "all is logged of "+agent, func() (int, error) {
			said, now, err := loggedOf(logs, agent)
			if diff := cmp.Diff(want, said); err != nil || diff != "" || now != status {
				return 0, fmt.Errorf("%s, %v, %d said", now, err, len(said))
			}
			return 0, nil
		})
	}
	eventually(t, "the warning is gone", func() (int, error) {
		if text := warned(); strings.Contains(text, "not logged") {
			return 0, errors.New(text)
		}
		return 0, nil
	})
	s.end()
	if text := s.log.String(); strings.Count(text, "sessions are not logged") != 1 || strings.Count(text, "sessions are logged again") != 1 {
		t.Errorf("the log of the server:\n%s", text)
	}
}

// What all agents were told and have said is in the logs of sessions: no agent reads them, wherever they lie.
func TestLogsAreNoAgents(t *testing.T) {
	t.Parallel()
	logs := filepath.Join(t.TempDir(), "logs")
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--log-dir", logs) })
	s.call("/", "create_agent", `{"agent_id":"victim"}`)
	s.send("victim", "my secret is 0815")
	for _, preset := range []string{"trusted", "sandboxed"} {
		s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q,"preset":%q}`, preset, s.cwd, preset))
		s.wantPrivate(preset, filepath.Join(logs, "logs.db"))
		if answer := s.send(preset, "run grep -r 0815 "+logs); strings.Contains(answer, "my secret") || gjson.Get(answer, "error").Exists() {
			t.Errorf("%s: %s", preset, answer)
		}
	}
	s.end()
	if text, err := exec.Command("grep", "-r", "my secret is 0815", logs).CombinedOutput(); err != nil {
		t.Errorf("nothing was logged: %v, %s", err, text)
	}
}
