package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// newMakes is a server that has, of each protocol that keeps a conversation, a kind that does what its prompts
// say, and one named lost-PROTOCOL that resumes nothing.
func newMakes(t *testing.T, protocols []string) *live {
	t.Helper()
	dir := t.TempDir()
	fake := filepath.Join(dir, "fakeagent")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", fake, "nexus.internal/fixtures/fakeagent").CombinedOutput(); err != nil {
		t.Fatalf("build fakeagent: %v\n%s", err, out)
	}
	var kinds []string
	for _, p := range protocols {
		for name, fault := range map[string]string{"well-" + p: "by-prompt", "asks-" + p: "asks", "lost-" + p: "no-resume"} {
			state := filepath.Join(dir, name)
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, fmt.Sprintf(`%q:{"protocol":%q,"command":[%q,%q,"--fault",%q,"--state",%q]}`, name, p, fake, p, fault, state))
		}
	}
	return newLive(t, func(cmd *exec.Cmd) {
		for _, v := range cmd.Env {
			if home, ok := strings.CutPrefix(v, "NEXUS_HOME="); ok {
				if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(`{"kinds":{`+strings.Join(kinds, ",")+`}}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func (s *live) createOfKind(kind string) {
	s.Helper()
	made := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"kind":%q,"cwd":%q,"approvals":"ask"}`, kind, kind, s.cwd))
	if !gjson.Get(made, "result").Exists() {
		s.Fatalf("create_agent: %s", made)
	}
}

// messages are the conversation that nexus kept.
func (s *live) messages(agent string) string {
	return gjson.Get(s.call("/agent/"+agent, "get_messages", `{}`), "result.messages").Raw
}

// Agents of all makes keep one contract through the façade: busy, cancel, one outcome for each prompt, numbered events,
// and a conversation that outlives the program, its nexus-child and the server.
func TestTurnsOfPrograms(t *testing.T) {
	t.Parallel()
	protocols := []string{"acp", "claude", "codex", "pi"}
	s := newMakes(t, protocols)
	for _, p := range protocols {
		agent := "well-" + p
		s.createOfKind(agent)
		if got := gjson.Get(s.send(agent, "hello"), "result.content").Str; got != "prompt 1: hello" {
			t.Errorf("%s: %s", p, got)
		}
		long := s.sendAsync(agent, "chaos wait.")
		last, gaps := s.resume(agent, 0, func(data string) bool { return strings.Contains(data, `" still"`) })
		if got := s.call("/agent/"+agent, "send", `{"content":"now","when_busy":"reject"}`); gjson.Get(got, "error.data.type").Str != "AGENT_BUSY" {
			t.Errorf("%s, a second prompt: %s", p, got)
		}
		id := ""
		for _, a := range gjson.Get(s.call("/", "list_agents", `{}`), "result.agents").Array() {
			if a.Get("agent_id").Str == agent {
				id = a.Get("request_id").Str
			}
		}
		if got := s.call("/agent/"+agent, "cancel", fmt.Sprintf(`{"request_id":%q}`, id)); !gjson.Get(got, "result").Exists() {
			t.Errorf("%s, cancel %q: %s", p, id, got)
		}
		if got := <-long; !gjson.Get(got, "result.cancelled").Bool() {
			t.Errorf("%s, what was cancelled: %s", p, got)
		}
		last, more := s.resume(agent, last, func(data string) bool { return gjson.Get(data, "type").Str == "agent_end" })
		if gaps+more > 0 {
			t.Errorf("%s: %d gaps in the events", p, gaps+more)
		}
		// The program dies, then its nexus-child.
		if got := s.send(agent, "chaos die."); gjson.Get(got, "error.data.type").Str != "CHILD_CRASHED" {
			t.Errorf("%s, killed: %s", p, got)
		}
		if got := gjson.Get(s.send(agent, "again"), "result.content").Str; got != "prompt 4: again" {
			t.Errorf("%s, after the program's death: %s", p, got)
		}
		s.resume(agent, last, func(data string) bool { return strings.Contains(data, "again") })
		if err := syscall.Kill(s.pid(agent), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		got := s.call("/agent/"+agent, "send", `{"content":"and again","on_crash":"retry"}`) // its death may be noticed later
		if !strings.HasSuffix(gjson.Get(got, "result.content").Str, ": and again") {
			t.Errorf("%s, after its nexus-child's death: %s", p, got)
		}
		s.createOfKind("lost-" + p)
		s.send("lost-"+p, "the word is swordfish")
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s.again()
	defer s.end()
	for _, p := range protocols {
		agent := "well-" + p
		if got := s.send(agent, "the last"); !strings.HasPrefix(gjson.Get(got, "result.content").Str, "prompt 6: ") {
			t.Errorf("%s, after the server's death: %s", p, got)
		}
		kept := s.messages(agent)
		for _, want := range []string{"prompt 1: hello", "prompt 2: chaos wait. still", "prompt 3: chaos die.", ": and again"} {
			if !strings.Contains(kept, want) {
				t.Errorf("%s: %q is not kept: %s", p, want, kept)
			}
		}
		// A program that cannot go on is given the conversation, which is said in an event.
		agent = "lost-" + p
		if got := gjson.Get(s.send(agent, "which word?"), "result.content").Str; !strings.Contains(got, "swordfish") || !strings.Contains(got, "which word?") {
			t.Errorf("%s, a program that has lost all: %s", p, got)
		}
		s.resume(agent, 0, func(data string) bool { return gjson.Get(data, "event.type").Str == "context_given" })
	}
}

// What a program asks is answered through the façade, with the program's own options.
func TestQuestionsOfPrograms(t *testing.T) {
	t.Parallel()
	protocols := []string{"acp", "claude", "codex", "pi"}
	s := newMakes(t, protocols)
	defer s.end()
	for _, p := range protocols {
		agent := "asks-" + p
		s.createOfKind(agent)
		answer := s.sendAsync(agent, "go")
		asked := eventually(t, "a question", func() (gjson.Result, error) {
			pending := gjson.Get(s.call("/agent/"+agent, "get_permissions", `{}`), "result.pending.0")
			if !pending.Exists() {
				return pending, fmt.Errorf("nothing is asked")
			}
			return pending, nil
		})
		if !strings.Contains(asked.Get("command").Str+asked.Get("summary").Str, "touch made") {
			t.Errorf("%s asks %s", p, asked.Raw)
		}
		want := map[string]string{"acp": "yes", "claude": `{"behavior":"allow","updatedInput":{"command":"touch made"}}`, "codex": "accept", "pi": "true"}[p]
		got := s.call("/agent/"+agent, "respond_permission", fmt.Sprintf(`{"request_id":%q,"decision":"allow_once"}`, asked.Get("request_id").Str))
		if !gjson.Get(got, "result").Exists() {
			t.Errorf("%s: %s", p, got)
		}
		if said := gjson.Get(<-answer, "result.content").Str; !strings.HasSuffix(said, " answer: "+want) {
			t.Errorf("%s was told %q of %s", p, said, asked.Get("options").Raw)
		}
	}
}

// People see agents of other makes as all others, and of what kind they are.
func TestProgramsAtATerminal(t *testing.T) {
	t.Parallel()
	s := newMakes(t, []string{"acp"})
	s.createOfKind("well-acp")
	p := atTerminal(t, s.home, s.cwd, 100, "top")
	p.sees("nexus top · 1 agent: 1 ready", "well-acp · ready · well-acp/default · trusted")
	p.types("\r")
	p.sees("well-acp · well-acp/default · trusted")
	p.types("hello\r")
	p.sees("prompt 1: hello")
	p.types("/quit\r")
	p.sees("nexus top · 1 agent")
	p.types("q")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	cmd := exec.Command(filepath.Join(programs, "nexus"), "top", "--once", "--home", s.home)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), " well-acp/default\n") {
		t.Errorf("top --once: %v\n%s", err, out)
	}
	s.end()
}
