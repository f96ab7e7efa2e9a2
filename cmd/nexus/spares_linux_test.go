package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// metric is a number of GET /metrics, as it stands there; "" if it has none.
func (s *live) metric(name string) string {
	s.Helper()
	_, text, err := request(http.MethodGet, s.url+"/metrics", http.Header{"Authorization": {"Bearer " + s.key}}, "")
	if err != nil {
		s.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "\n"+name+" ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// spare waits until a spare waits, and returns its id.
func (s *live) spare() int {
	s.Helper()
	return eventually(s.T, "a spare", func() (int, error) {
		if s.metric("nexus_spares") != "1" {
			return 0, errors.New("none waits")
		}
		agents := gjson.Get(s.call("/", "list_agents", `{}`), "result.agents.#.pid").Raw
		for _, pid := range childrenWith(s.T, s.cmd.Process.Pid, "spare") {
			if !strings.Contains(strings.NewReplacer("[", ",", "]", ",").Replace(agents), fmt.Sprintf(",%d,", pid)) {
				return pid, nil
			}
		}
		return 0, errors.New("none is there")
	})
}

// The process of an agent that was a spare is as one that was started for it; nothing of
// one agent is in that of the next, nor in a spare.
func TestSpareOfTheServer(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	first := s.spare()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const system, variable = "canary-system-4f1c", "canary-variable-81be"
	create := func(params string) {
		t.Helper()
		if answer := s.call("/", "create_agent", params); !gjson.Get(answer, "result").Exists() {
			t.Fatal(answer)
		}
	}
	create(fmt.Sprintf(`{"agent_id":"one","cwd":%q,"system_prompt":%q}`, dir, system))
	if pid := s.pid("one"); pid != first {
		t.Fatalf("the agent is process %d, want the spare %d", pid, first)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", first)); err != nil || cwd != dir {
		t.Errorf("it works in %s, %v, want %s", cwd, err, dir)
	}
	if got := gjson.Get(s.call("/agent/one", "get_system_prompt", `{}`), "result.system_prompt").Str; got != system {
		t.Errorf("its system prompt is %q, want %q", got, system)
	}
	create(fmt.Sprintf(`{"agent_id":"own","env":{"CANARY":%q}}`, variable))
	second := s.spare()
	if pid := s.pid("own"); pid == first || pid == second {
		t.Errorf("an agent with an environment of its own is process %d, which is a spare", pid)
	}
	create(fmt.Sprintf(`{"agent_id":"two","cwd":%q}`, t.TempDir()))
	if pid := s.pid("two"); pid != second {
		t.Fatalf("the second agent is process %d, want the spare %d", pid, second)
	}
	third := s.spare()
	for _, pid := range []int{second, third} {
		for _, file := range []string{"environ", "cmdline"} {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				t.Logf("%s cannot be read here: %v", file, err)
			}
			for _, secret := range []string{system, variable, dir, s.key} {
				if bytes.Contains(data, []byte(secret)) {
					t.Errorf("%s is in %s of process %d", secret, file, pid)
				}
			}
		}
		for _, secret := range []string{system, variable, dir, s.key} {
			if found, err := inMemory(pid, secret); err != nil {
				t.Logf("memory cannot be read here: %v", err)
			} else if found {
				t.Errorf("%s is in the memory of process %d", secret, pid)
			}
		}
	}
	if found, err := inMemory(first, system); err == nil && !found {
		t.Error("the look for a system prompt does not find it where it is")
	}

	t.Run("a restart takes one, too", func(t *testing.T) {
		if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the restart", func() (int, error) {
			if pid := s.pid("one"); pid != third {
				return 0, fmt.Errorf("it is process %d", pid)
			}
			return third, nil
		})
		if got := gjson.Get(s.call("/agent/one", "get_system_prompt", `{}`), "result.system_prompt").Str; got != system {
			t.Errorf("its system prompt is %q, want %q", got, system)
		}
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", third)); err != nil || cwd != dir {
			t.Errorf("it works in %s, %v, want %s", cwd, err, dir)
		}
	})
	t.Run("more agents than spares", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() { create(fmt.Sprintf(`{"agent_id":"many%d"}`, i)) })
		}
		all.Wait()
		pids := map[int]bool{}
		for i := range 6 {
			pids[s.pid(fmt.Sprint("many", i))] = true
		}
		if len(pids) != 6 {
			t.Errorf("6 agents have %d processes", len(pids))
		}
	})
	t.Run("they end with a killed server", func(t *testing.T) {
		last := s.spare()
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait() // it was killed
		if err := awaitEnd(last); err != nil {
			t.Errorf("the spare %v", err)
		}
	})
	s.again()
	last := s.spare()
	s.end()
	if err := awaitEnd(last); err != nil {
		t.Errorf("the spare %v", err)
	}
}

// The flag is before the configuration, which is reloaded; and a child of the user's
// choice is no spare.
func TestNumberOfSpares(t *testing.T) {
	t.Parallel()
	var args []string
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, args...) })
	has := func(want string) {
		t.Helper()
		eventually(t, "spares", func() (int, error) {
			if got := s.metric("nexus_spares"); got != want {
				return 0, fmt.Errorf("there are %s, want %s", got, want)
			}
			return 0, nil
		})
	}
	has("1")
	for _, c := range []struct{ config, want string }{
		{`{"server":{"spares":2}}`, "2"},
		{`{"server":{"spares":2},"limits":{"processes":50}}`, "0"}, // which no spare has
		{`{"server":{"spares":1},"limits":{"turn_s":60,"tokens":1000000}}`, "1"},
		{`{"server":{"spares":0}}`, "0"},
	} {
		if err := os.WriteFile(filepath.Join(s.home, "config.json"), []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		has(c.want)
	}
	s.end()
	for _, args = range [][]string{{"--spares", "1"}, {"--spares", "1", "--child", filepath.Join(programs, "nexus-child")}} {
		s.again()
		want := map[int]string{2: "1", 4: "0"}[len(args)]
		has(want)
		s.call("/", "create_agent", `{"agent_id":"a"}`)
		if got := s.metric("nexus_spares_used_total"); got != want {
			t.Errorf("with %v %s spares were used, want %s", args, got, want)
		}
		s.end()
	}
}
