package main_test

import (
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// rpc runs a verb of nexus-rpc with the server.
func (s *live) rpc(args ...string) (stdout, stderr string, status int) {
	cmd := exec.Command(filepath.Join(programs, "nexus-rpc"), append([]string{"--home", s.home}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its status tells
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// tellsUnreached looks at what a person is told by a machine of a cluster while the machine b is lost, which has the agent bound: of a list that agents are
// missing in it, and of an agent that is not found that b may have it.
func tellsUnreached(t *testing.T, s *live) {
	t.Helper()
	const missing, mayHave = "the machine b is not reached: what it has is missing here", "; but the machine b is not reached, and may have it"
	for _, tt := range []struct {
		verb           string
		status         int
		stdout, stderr string
	}{
		{"list", 0, "\nworker ", missing},
		{"list -o name", 0, "worker\n", missing},
		{"list --json", 0, `"unreachable_nodes":["b"]`, missing},
		{"sessions", 0, "\nworker ", missing},
		{"sessions --json", 0, `"unreachable_nodes":["b"]`, missing},
		{"approvals", 0, "nothing waits", missing},
		{"status worker", 0, "worker", ""},
		{"status bound", 1, "", "no agent bound runs, and none is saved" + mayHave},
		{"status bound --json", 1, "", `"type":"NODE_UNREACHABLE"`},
		{"stop bound", 1, "", "no agent bound runs, and none is saved" + mayHave},
		{"destroy nobody", 1, "", "no agent nobody" + mayHave},
		{"destroy bound", 1, "", "the machine b, which has the agent, is not reached"},
		{"delete nobody", 1, "", "no session nobody" + mayHave},
		{"delete bound", 1, "", "the machine b, which has the session, is not reached"},
		{"allow nothing", 1, "", "never there" + mayHave},
		{"keys create --agent bound", 0, "nxk_", mayHave + ": the key is for that one, or for one of that name to come"},
	} {
		stdout, stderr, status := s.rpc(strings.Fields(tt.verb)...)
		if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) || tt.stderr == "" && stderr != "" {
			t.Errorf("%s: %d\n%s%s", tt.verb, status, stdout, stderr)
		}
		if tt.status != 0 && strings.HasSuffix(tt.verb, "--json") && gjson.Get(stderr, "error.code").Exists() {
			t.Errorf("%s: an error that no server reported has a code: %s", tt.verb, stderr)
		}
	}
	top := exec.Command(filepath.Join(programs, "nexus"), "top", "--once", "--home", s.home)
	if out, err := top.CombinedOutput(); err != nil || !strings.Contains(string(out), missing) || !strings.Contains(string(out), "\nworker ") {
		t.Errorf("top --once: %v\n%s", err, out)
	}
	p := atTerminal(t, s.home, s.cwd, 120, "top")
	p.sees("nexus top", missing)
	p.types("q")
	_ = p.leaves()
	p = atTerminal(t, s.home, s.cwd, 120)
	p.sees(missing, "1) Resume", "2) Fresh session")
	p.types("q\r")
	_ = p.leaves()
	p = atTerminal(t, s.home, s.cwd, 120, "--agent", "worker")
	p.sees("worker · offline")
	p.types("/list\r")
	p.sees(missing)
	p.types("/load nobody\r")
	p.sees("no session nobody is saved: /sessions lists them" + mayHave)
	p.types("/agent nobody\r")
	p.sees("there is no agent nobody" + mayHave + ": create it? y/n")
	p.types("n\r/quit\r")
	_ = p.leaves()
}

// Machines that are started after one was lost know of it by the agents that it has: it is lost to them, too, and what it has is missing. So it is of a machine
// that was removed, while agents wait for it.
func TestClusterUnheard(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	a.createIn("worker", shared)
	if answer := a.send("worker", "My name is Alice"); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	b.createIn("bound", t.TempDir())
	if answer := a.send("bound", "My name is Alice"); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	for _, s := range []*live{b, a, c} {
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait() // that it was killed
	}
	a.again()
	c.again()
	missing := func(s *live, state, found string) {
		t.Helper()
		for _, method := range []string{"list_agents", "list_sessions"} {
			if answer := s.call("/", method, `{}`); gjson.Get(answer, "result.unreachable_nodes").Raw != `["b"]` {
				t.Errorf("%s of %s: %s", method, s.cwd, answer)
			}
		}
		const mayHave = "no agent bound runs, and none is saved; but the machine b is not reached, and may have it"
		if _, stderr, status := s.rpc("status", "bound"); status != 1 || !strings.Contains(stderr, mayHave) {
			t.Errorf("status bound: %d, %s", status, stderr)
		}
		if stdout, _, _ := s.rpc("nodes"); !strings.Contains(strings.Join(strings.Fields(stdout), " "), " b "+state+" 1 - - - ") {
			t.Errorf("nodes:\n%s", stdout)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(text), `nexus_cluster_machines{state="`+state+`"} 1`) {
			t.Errorf("metrics: %v\n%s", err, text)
		}
		doctor := exec.Command(filepath.Join(programs, "nexus"), "doctor", "--home", s.home)
		if out, _ := doctor.CombinedOutput(); !strings.Contains(string(out), found) { // of which it warns
			t.Errorf("doctor:\n%s", out)
		}
	}
	for _, s := range []*live{a, c} {
		s.untilNodes("a up, b lost, c up")
		missing(s, "lost", "the machine b, which has agents, is lost, and was not heard of since this server started")
	}
	if says, err := a.removes("b"); err != nil || !strings.Contains(says, "bound ") {
		t.Fatalf("remove b: %v\n%s", err, says)
	}
	for _, s := range []*live{a, c} {
		s.untilNodes("a up, b removed, c up")
		missing(s, "removed", "agents wait for the machine b, which was removed")
	}
	c.end()
	a.end()
}
