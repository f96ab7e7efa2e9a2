package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"
)

// imported is what nexus cluster import says of a home, asked of a machine: the outcome of each session and run, by its name there.
func (s *live) imported(dir string, flags ...string) (outcomes map[string]string, err error) {
	s.Helper()
	out, err := s.nexus(append([]string{"cluster", "import", dir, "--json"}, flags...)...)
	outcomes = map[string]string{}
	for _, one := range gjson.Get(out, "sessions").Array() {
		outcomes[one.Get("session").Str] = one.Get("outcome").Str + " " + one.Get("agent_id").Str
	}
	for _, one := range gjson.Get(out, "runs").Array() {
		outcomes[one.Get("plan_run_id").Str] = one.Get("outcome").Str
	}
	return outcomes, err
}

// wantImported checks what an import says of some sessions; fails says that something stays where it was.
func (s *live) wantImported(fails bool, want map[string]string, dir string, flags ...string) {
	s.Helper()
	got, err := s.imported(dir, flags...)
	if (err != nil) != fails {
		s.Errorf("import %q: %v", flags, err)
	}
	for name, outcome := range want {
		if got[name] != outcome {
			s.Errorf("import %q: of %s it says %q, want %q", flags, name, got[name], outcome)
		}
	}
}

// A home of a single machine is brought into a cluster that works: any machine answers for its agents then, with their conversation, outcomes and event
// numbers. What the cluster has of the same name stays as it is, a home in use is refused, a kill in the middle leaves nothing half or twice, and another machine takes over
// what came.
func TestClusterImport(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	old := newLive(t, nil)
	old.createIn("one", shared)
	old.createIn("two", shared)
	for _, agent := range []string{"one", "two"} {
		if answer := old.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
	}
	if answer := old.call("/", "run_plan", `{"request_id":"plan","plan":{"tasks":[{"id":"x","type":"testing","description":"y","priority":1}]},"agents":["one"]}`); gjson.Get(answer, "result.status").Str == "" {
		t.Fatal(answer)
	}
	numbers := <-old.numbers("one", `"turn_end"`)
	want := map[string]string{}
	for n := range 30 {
		name := fmt.Sprintf("copy-%02d", n)
		if answer := old.call("/", "clone_session", fmt.Sprintf(`{"src_session":"one","dest_session":%q}`, name)); !gjson.Get(answer, "result.cloned").Bool() {
			t.Fatal(answer)
		}
		want[name] = "comes " + name
	}
	b.createIn("two", shared)
	if answer := b.send("two", "My name is Bob"); !strings.Contains(answer, "Bob") {
		t.Fatal(answer)
	}
	a.untilOwner("two", "b")

	foreign := t.TempDir() // of a machine of another cluster
	for _, dir := range []string{"sessions", "cluster/other/x/agents"} {
		if err := os.MkdirAll(filepath.Join(foreign, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	refusals := map[string]string{
		old.home: "a server uses", a.home: "is the home of the server that is asked", shared: "it has no sessions",
		b.home: "is the home of the machine b of the cluster", foreign: "is the home of the machine x of the cluster other, which may go on with its agents",
	}
	for dir, refusal := range refusals {
		out, err := exec.Command(filepath.Join(programs, "nexus"), "cluster", "import", dir, "--home", a.home).CombinedOutput()
		if err == nil || !strings.Contains(string(out), refusal) {
			t.Errorf("import %s: %v: %s", dir, err, out)
		}
	}
	a.wantImported(false, nil, foreign, "--alone")
	old.end()
	want["one"], want["two"], want["plan"] = "comes one", "conflict two", "comes"
	huge := filepath.Join(old.home, "sessions", "huge.jsonl") // nobody lives to read it to its end
	session, err := os.ReadFile(filepath.Join(old.home, "sessions", "one.jsonl"))
	if err == nil {
		err = errors.Join(os.WriteFile(huge, session, 0o600), os.Truncate(huge, 300<<30))
	}
	pipe, strange := filepath.Join(old.home, "plans", "pipe.jsonl"), filepath.Join(old.home, "sessions", "\x1b[31m\xff.jsonl")
	err = errors.Join(err, unix.Mkfifo(pipe, 0o600), os.WriteFile(strange, session, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	want["huge"], want["pipe"], want[`"\x1b[31m\xff.jsonl"`] = "refused huge", "refused", `refused "\x1b[31m\xff.jsonl"`
	a.wantImported(true, want, old.home, "--dry-run")
	for _, name := range []string{"huge", "pipe", `"\x1b[31m\xff.jsonl"`} {
		delete(want, name)
	}
	if err := errors.Join(os.Remove(huge), os.Remove(pipe), os.Remove(strange)); err != nil {
		t.Fatal(err)
	}
	if got := a.savedNames(); !slices.Equal(got, []string{"two"}) {
		t.Errorf("after a dry run there are %q", got)
	}

	importing := exec.Command(filepath.Join(programs, "nexus"), "cluster", "import", old.home, "--home", a.home)
	if err := importing.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "something comes", func() (none struct{}, err error) {
		_, err = os.Stat(filepath.Join(a.home, "sessions", "copy-03.jsonl"))
		return none, err
	})
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.cmd.Wait() // that it was killed
	if err := importing.Wait(); err == nil {
		t.Error("the import was not interrupted: this proves little")
	}
	a.again()
	a.untilNodes("a up, b up, c up")
	eventually(t, "the rest comes", func() (none struct{}, err error) { // once the machines agree again
		got, _ := a.imported(old.home)
		if len(got) != 33 || got["plan"] != "brought" {
			err = fmt.Errorf("%v", got)
		}
		return none, err
	})
	for name := range want {
		want[name] = "there " + name
	}
	want["two"], want["plan"] = "conflict two", "there"
	a.wantImported(true, want, old.home)
	want["two"] = "brought old-two"
	a.wantImported(false, want, old.home, "--rename", "old-")
	want["two"] = "there old-two"
	c.wantImported(false, want, old.home, "--rename", "old-") // also by a machine that has none of them
	if got := b.savedNames(); len(got) != 33 || len(slices.Compact(got)) != 33 {
		t.Errorf("there are %q", got)
	}

	// What was said in the old home since is not lost by whoever believes the import and removes it.
	old.again()
	if answer := old.call("/agent/copy-00", "send", `{"content":"My name is Carol"}`); !strings.Contains(answer, "Carol") {
		t.Fatal(answer)
	}
	old.end()
	want["copy-00"], want["two"] = "conflict copy-00", "conflict two"
	a.wantImported(true, want, old.home)
	c.wantImported(true, want, old.home)

	first := func(s *live, agent string) {
		t.Helper()
		if answer := s.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !gjson.Get(answer, "result.replayed").Bool() || !strings.Contains(answer, "Alice") {
			t.Errorf("of an old request of %s another machine says %s", agent, answer)
		}
	}
	for _, agent := range []string{"one", "old-two"} {
		untilMoved(t, c, agent)
		first(c, agent)
	}
	untilMoved(t, b, "copy-29")
	if got := <-c.numbers("one", `"turn_end"`); !slices.Equal(got, numbers) {
		t.Errorf("the numbers of events are %d, and were %d", got, numbers)
	}
	if answer := c.send("two", "What is my name?"); !strings.Contains(answer, "Bob") {
		t.Errorf("the agent that the cluster had says %s", answer)
	}
	if answer := a.call("/", "run_plan", `{"request_id":"plan","plan":{"tasks":[{"id":"x","type":"testing","description":"y","priority":1}]},"agents":["one"]}`); !gjson.Get(answer, "result.replayed").Bool() {
		t.Errorf("the run that was recorded before: %s", answer)
	}

	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.cmd.Wait() // that it was killed
	untilMoved(t, b, "one")
	first(b, "one")
	c.end()
	b.end()
}

// untilOwner waits until the server knows which machine has an agent.
func (s *live) untilOwner(agent, machine string) {
	s.Helper()
	eventually(s.T, agent+" is known to be of "+machine, func() (none struct{}, err error) {
		if of := s.owner(agent); of != machine {
			err = errors.New("it is of " + of)
		}
		return none, err
	})
}

// savedNames are the names of the sessions of all machines, sorted.
func (s *live) savedNames() (names []string) {
	for _, one := range gjson.Get(s.call("/", "list_sessions", `{"limit":200}`), "result.sessions.#.name").Array() {
		names = append(names, one.Str)
	}
	slices.Sort(names)
	return names
}
