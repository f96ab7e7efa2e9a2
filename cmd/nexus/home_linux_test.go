package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// A start that is refused for what it was told makes no home.
func TestRefusedStartMakesNoHome(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	logged := filepath.Join(t.TempDir(), "logs")
	newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--log-dir", logged) })
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"there is no machine.json", []string{"0", "--cluster-files", "none"}},
		{"read the certificate", []string{"0", "--listen", "127.0.0.1:0", "--tls-cert", "none", "--tls-key", "none"}},
		{"find --child", []string{"0", "--child", "/none"}},
		{"read --scenario", []string{"0", "--scenario", "none"}},
		{"uses", []string{port}},
		{"open the log: ", []string{"0", "--log-file", "/dev/null/log"}},
		{"open the log: ", []string{"0", "--log-file", "none/log"}},
		{"open the log: ", []string{"0", "--log-file", "."}},
		{"open the log: ", []string{"0", "--log-file", "HOME"}},
		{"open the log: ", []string{"0", "--log-file", "HOME/logs/"}},
		{"open the log: ", []string{"0", "--log-file", "HOME/none/log"}},
		{"in the home, which has other files", []string{"0", "--log-file", "HOME/config.json"}},
		{"open the session logs: ", []string{"0", "--log-dir", "/dev/null/logs"}},
		{"has files (link)", []string{"0", "--log-dir", "."}},
		{"is a symbolic link", []string{"0", "--log-dir", "link"}},
		{"open the session logs: ", []string{"0", "--log-dir", "link/logs"}},
		{"has other files, of the home", []string{"0", "--log-dir", "HOME"}},
		{"another nexus server logs sessions in", []string{"0", "--log-dir", logged}},
	} {
		home := filepath.Join(t.TempDir(), "home")
		for i, arg := range tc.args {
			if rest, is := strings.CutPrefix(arg, "HOME"); is {
				tc.args[i] = home + rest
			}
		}
		cmd := exec.Command(filepath.Join(programs, "nexus"), append([]string{"serve", "--home", home}, tc.args...)...)
		cwd := t.TempDir()
		if err := os.Symlink("none", filepath.Join(cwd, "link")); err != nil {
			t.Fatal(err)
		}
		cmd.Dir, cmd.Env = cwd, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v\n%s", tc.args, err, out)
		}
		if left, err := os.ReadDir(home); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s leaves a home with %v, %v", tc.args, left, err)
		}
	}
}

// What a server starts does not hold the server's home: neither a child, nor
// what a child has left behind, in whatever session.
func TestNobodyInheritsTheHome(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	lock := filepath.Join(s.home, "run", "lock")
	kept := filepath.Join(s.cwd, "pid")
	wrapper := filepath.Join(s.cwd, "child")
	script := "#!/bin/sh\nsetsid sh -c 'echo $$ >" + kept + ".new; mv " + kept + ".new " + kept + "; exec sleep 1000' </dev/null >/dev/null 2>&1 &\n" +
		"exec " + filepath.Join(programs, "nexus-child") + ` "$@"` + "\n"
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s.end()
	s.prepare = func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--child", wrapper) }
	s.again()
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	child := s.pid("a")
	left := eventually(t, "the child leaves a process", func() (int, error) {
		text, err := os.ReadFile(kept)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(text)))
	})
	t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) }) // the system may have done so
	if !holds(t, s.cmd.Process.Pid, lock) && os.Getuid() == 0 {
		t.Fatal("the server does not hold the lock that is looked for")
	}
	for _, pid := range []int{child, left} {
		if holds(t, pid, lock) {
			t.Errorf("process %d has the lock", pid)
		}
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
	s.again()
	s.end()
}

// holds reports whether a process has the file open, as far as one may look: the
// server and the children show themselves to root alone.
func holds(t *testing.T, pid int, path string) bool {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil && os.Getuid() == 0 {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && to == path {
			return true
		}
	}
	return false
}

// A server whose home was renamed, or whose lock was taken away, is not ready, and
// ends as any other.
func TestHomeTakenAway(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(home string) error{
		"renamed":    func(home string) error { return os.Rename(home, home+".old") },
		"lock moved": func(home string) error { return os.Rename(filepath.Join(home, "run", "lock"), home+".lock") },
		"run removed": func(home string) error {
			return os.RemoveAll(filepath.Join(home, "run"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLive(t, nil)
			s.call("/", "create_agent", `{"agent_id":"a"}`)
			s.send("a", "hello")
			ready := func() (int, string) {
				status, answer, err := request(http.MethodGet, s.url+"/readyz", http.Header{"Authorization": {"Bearer " + s.key}}, "")
				if err != nil {
					t.Fatal(err)
				}
				return status, gjson.Get(answer, "checks.home").Str
			}
			if status, home := ready(); status != http.StatusOK || home != "ok" {
				t.Errorf("at first: HTTP %d, %q", status, home)
			}
			if err := spoil(s.home); err != nil {
				t.Fatal(err)
			}
			if status, home := ready(); status != http.StatusServiceUnavailable || !strings.Contains(home, "the home is not what it was") {
				t.Errorf("then: HTTP %d, %q", status, home)
			}
			s.end() // with status 0
		})
	}
}

// A server makes nothing in the place of its home that was renamed, and says of no change
// that it is saved; once the home is back, it and the next server have what was there.
func TestHomeIsRenamedBack(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	s.send("a", "hello")
	key := gjson.Get(s.call("/", "create_key", `{"scope":"read"}`), "result.key_id").Str
	if err := os.Rename(s.home, s.home+".old"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, method, params string }{
		{"/", "create_key", `{"scope":"read"}`},
		{"/", "clone_session", `{"src_session":"a","dest_session":"b"}`},
		{"/agent/a", "set_limits", `{"limits":{"tokens":10}}`},
		{"/", "run_plan", `{"request_id":"p","plan":{"tasks":[{"id":"x","type":"testing","description":"y","priority":1}]},"agents":["a"]}`},
		{"/agent/a", "send", `{"content":"hello"}`},
		{"/", "revoke_key", `{"key_id":"` + key + `"}`},
	} {
		answer := s.call(c.path, c.method, c.params)
		got := gjson.Get(answer, "error.data.type").Str
		if got != "NOT_RECORDED" && (c.method != "send" || got != "EXECUTION_ERROR") { // a turn is refused as its session's file is not there
			t.Errorf("%s: %s", c.method, answer)
		}
	}
	if answer := s.call("/", "create_agent", `{"agent_id":"b"}`); !gjson.Get(answer, "error").Exists() {
		t.Errorf("create_agent: %s", answer)
	}
	if err := syscall.Kill(s.pid("a"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent fails", func() (answer string, err error) {
		answer = s.call("/", "list_agents", "{}")
		if state := gjson.Get(answer, "result.agents.#(agent_id==a).state").Str; state != "backoff" && state != "failed" {
			err = errors.New(answer)
		}
		return answer, err
	})
	if _, err := os.Lstat(s.home); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("there is a home again: %v", err)
	}
	if err := os.Rename(s.home+".old", s.home); err != nil {
		t.Fatal(err)
	}
	s.end()
	s.again()
	if answer := s.call("/", "list_keys", "{}"); strings.Contains(answer, key) {
		t.Errorf("the revoked key: %s", answer) // it was written when the home was there again
	}
	if answer := s.send("a", "hello"); gjson.Get(answer, "result.stop_reason").Str != "completed" {
		t.Errorf("in the next server: %s", answer)
	}
	s.end()
}

// planted is what somebody could put in the place of a file.
var planted = map[string]func(path string) error{
	"link": func(path string) error { return os.Symlink(path+".victim", path) },
	"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
}

// Of what somebody put in the place of a file that a server reads at its start nothing is
// followed, and nothing waited for: it starts without, or says what is wrong.
func TestPlantedInTheHome(t *testing.T) {
	t.Parallel()
	for file, starts := range map[string]bool{
		"audit.jsonl": false, "audit-limited.jsonl": false, "audit-excess.jsonl": false, "keys.json": false, "run/lock": false, "run/signatures": false, "sessions/.lock": false,
		"run/last": true, "sessions/.change": true,
	} {
		for kind, plant := range planted {
			t.Run(file+" is a "+kind, func(t *testing.T) {
				t.Parallel()
				home := filepath.Join(t.TempDir(), "home")
				path := filepath.Join(home, file)
				victim := path + ".victim"
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), plant(path), os.WriteFile(victim, []byte("victim"), 0o600)); err != nil {
					t.Fatal(err)
				}
				s := &live{T: t, home: home, cwd: t.TempDir(), log: &bytes.Buffer{}}
				if starts {
					s.again()
					s.call("/", "create_agent", `{"agent_id":"a"}`)
					if answer := s.send("a", "hello"); !strings.Contains(answer, "result") {
						t.Error(answer)
					}
					s.end()
				} else {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					cmd := exec.CommandContext(ctx, filepath.Join(programs, "nexus"), "serve", "0", "--home", home)
					out, err := cmd.CombinedOutput()
					if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "is not a regular file") || !strings.Contains(string(out), filepath.Base(file)) {
						t.Errorf("%v\n%s", err, out)
					}
					if left, _ := filepath.Glob(filepath.Join(home, "*.key")); left != nil {
						t.Errorf("left behind: %v", left)
					}
				}
				if text, err := os.ReadFile(victim); string(text) != "victim" {
					t.Errorf("the victim: %q, %v", text, err)
				}
			})
		}
	}
}

// An agent whose limits cannot be read does not start, which is told with a way out, and
// nobody else waits for that. It could use as much again after every crash of a machine.
func TestUnreadableUsage(t *testing.T) {
	t.Parallel()
	things := map[string]func(path string) error{
		"torn": func(path string) error { return os.WriteFile(path, []byte(`{"limits":{"tok`), 0o600) },
		"none of ours": func(path string) error {
			if os.Getuid() == 0 { // who reads all
				return os.Mkdir(path, 0o700)
			}
			return os.WriteFile(path, nil, 0o000)
		},
	}
	maps.Copy(things, planted)
	for name, put := range things {
		t.Run(name, func(t *testing.T) {
			s := newLive(t, nil)
			for _, id := range []string{"a", "b"} {
				s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q,"limits":{"turn_s":600,"tokens":1000}}`, id, s.cwd))
				s.send(id, "hello")
				s.call("/", "destroy_agent", fmt.Sprintf(`{"agent_id":%q}`, id))
			}
			segments, err := filepath.Glob(filepath.Join(s.home, "sessions", "a.records", "*.jsonl"))
			if err != nil || len(segments) == 0 {
				t.Fatalf("the agent has %v, %v", segments, err)
			}
			path := segments[len(segments)-1]
			kept := path + ".kept"
			if err := errors.Join(os.Rename(path, kept), put(path)); err != nil {
				t.Fatal(err)
			}
			for _, answer := range []string{
				s.call("/", "create_agent", `{"agent_id":"a"}`),
				s.call("/", "create_agent", `{"agent_id":"a","limits":{"tokens":5}}`),
				s.call("/", "load_session", `{"session_name":"a"}`),
				s.send("a", "hello"),
			} {
				got := gjson.Get(answer, "error.data")
				if got.Get("type").Str != "SESSION_DAMAGED" || !strings.Contains(got.Get("details").Str, path) ||
					!strings.Contains(got.Get("recovery_suggestions").Raw, "delete_session") {
					t.Error(answer)
				}
			}
			if answer := s.call("/", "create_agent", `{"agent_id":"b"}`); !gjson.Get(answer, "result").Exists() {
				t.Error(answer)
			}
			if answer := s.call("/", "clone_session", `{"src_session":"a","dest_session":"copy"}`); !gjson.Get(answer, "error").Exists() {
				t.Errorf("a copy without limits: %s", answer)
			}
			if err := errors.Join(os.RemoveAll(path), os.Rename(kept, path)); err != nil {
				t.Fatal(err)
			}
			if answer := s.send("a", "hello"); !gjson.Get(answer, "result").Exists() {
				t.Error(answer)
			}
			s.end()
		})
	}
}

// A temporary agent has limits also where there has been none yet.
func TestTemporaryAgentWithLimits(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	for range 2 {
		answer := s.call("/", "create_agent", `{"agent_id":".a","limits":{"tokens":1000}}`)
		if got := s.send(".a", "hello"); !gjson.Get(answer, "result").Exists() || !gjson.Get(got, "result").Exists() {
			t.Error(answer, got)
		}
		s.end()
		s.again()
	}
	s.end()
}

// A session whose directory was removed came back wherever it was told, and could reach all
// that is there.
func TestRemovedDirectory(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	cwd := filepath.Join(s.cwd, "work")
	mkdir := func() {
		if err := os.Mkdir(cwd, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mkdir()
	s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"a","cwd":%q,"preset":"sandboxed"}`, cwd))
	s.send("a", "hello")
	s.call("/", "destroy_agent", `{"agent_id":"a"}`)
	if err := os.Remove(cwd); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{
		s.send("a", "hello"), s.call("/", "create_agent", `{"agent_id":"a"}`), s.call("/", "load_session", `{"session_name":"a"}`),
		s.call("/", "create_agent", `{"agent_id":"a","cwd":"/"}`), s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"a","cwd":%q}`, s.cwd)),
	} {
		if got := gjson.Get(answer, "error.data"); got.Get("type").Str != "DIRECTORY_GONE" || !strings.Contains(got.Get("details").Str, cwd) {
			t.Error(answer)
		}
	}
	mkdir()
	if answer := s.send("a", "hello"); !gjson.Get(answer, "result").Exists() {
		t.Error(answer)
	}
	s.end()
}
