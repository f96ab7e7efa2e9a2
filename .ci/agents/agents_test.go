package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/playedmodel"
	"nexus.internal/cmd/internal/probe"
	"nexus.internal/protocol"
)

// TestAgents probes each agent, and has it run a command, be busy, and be one of many.
func TestAgents(t *testing.T) {
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			a.install(t)
			m, err := playedmodel.New()
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			env := append(a.env(t, m.URL(), t.TempDir()), m.Environment()...)
			t.Run("probe", func(t *testing.T) { a.probe(t, m, env) })
			t.Run("call", func(t *testing.T) { a.call(t, env) })
			t.Run("busy", func(t *testing.T) { a.busy(t, env) })
			t.Run("twenty", func(t *testing.T) { a.twenty(t, env) })
			if a.provider != "" {
				t.Run("served", func(t *testing.T) { a.served(t, m.URL()) })
			}
		})
	}
}

// child is the path of nexus-child.
func child() string { return filepath.Join(os.Getenv("NEXUS_BIN"), "nexus-child") }

func (a agent) program(t *testing.T) protocol.AgentProgram {
	return protocol.AgentProgram{Kind: a.name, Protocol: a.protocol, Command: a.command(t)}
}

// trying logs what is tried.
type trying struct{ *testing.T }

func (t trying) Trying(what string) { t.Log(what) }

// probe finds out about memory, cancels, large prompts, kills in mid-text and remains.
func (a agent) probe(t *testing.T, m *playedmodel.Player, env []string) {
	card, err := probe.Run(t.Context(), probe.Options{Child: child(), Program: a.program(t), Env: env, Model: m, Version: a.version, Progress: trying{t}})
	if err != nil {
		t.Fatal(err)
	}
	card.Command[0] = a.bin
	lines, _ := card.Lines()
	t.Log(strings.Join(lines, "\n"))
	if len(card.Problems) > 0 || card.Dialect == "" {
		t.Errorf("problems: %q, dialect %q", card.Problems, card.Dialect)
	}
	if !card.Remembers || !card.LargePrompt || card.CancelMS == 0 || card.Remains != 0 {
		t.Errorf("a conversation: %+v", card)
	}
	if !card.KeepsPartialText || !card.RemembersAfterCrash || card.Resumed != protocol.ResumedByProgram && card.Resumed != protocol.ResumedByContext {
		t.Errorf("after a crash: %+v", card)
	}
	if os.Getenv("UPDATE") != "" {
		write(t, filepath.Join("..", "..", "fixtures", "agents-of-others"), a.name+".json", card)
	}
}

// call has it run a command, after a question if it is one that asks.
func (a agent) call(t *testing.T, env []string) {
	dir := t.TempDir()
	c := a.start(t, dir, env)
	c.wait("ready")
	id := c.prompt(playedmodel.Run)
	asked := false
	f := c.until("a question or the end", func(f frame) bool { return f.Type == "permission_request" || f.Type == "response" && f.ID == id })
	if asked = f.Type == "permission_request"; asked {
		if made, err := os.ReadFile(filepath.Join(dir, playedmodel.Made)); err == nil {
			t.Errorf("it had run the command before it was allowed: %s", made)
		}
		c.send(object{"type": "permission_response", "id": "p", "request_id": f.RequestID, "decision": "allow_once"})
		if _, f = c.answer(id); !f.OK {
			t.Errorf("the end: %+v", f)
		}
	}
	if made, err := os.ReadFile(filepath.Join(dir, playedmodel.Made)); !strings.Contains(string(made), "probe-called") || asked != a.asks {
		t.Errorf("it made %q, %v, and asked: %v; the end: %+v", made, err, asked, f)
	}
}

// busy has it take a second prompt in the middle of a turn: that is refused, the turn goes on
// until it is cancelled, and the next one is answered.
func (a agent) busy(t *testing.T, env []string) {
	c := a.start(t, t.TempDir(), env)
	c.wait("ready")
	first := c.prompt(playedmodel.Long)
	c.until("text", func(f frame) bool { return strings.Contains(f.Event.Delta, "5") })
	second := c.prompt(playedmodel.Short)
	if f := c.until("the refusal", func(f frame) bool { return f.Type == "response" && f.ID == first || f.Type == "error" }); f.ID != second {
		t.Errorf("the second prompt: %+v", f)
	}
	c.send(object{"type": "abort", "id": "a"})
	if _, f := c.answer(first); !f.Cancelled {
		t.Errorf("the first prompt: %+v", f)
	}
	again := c.prompt(playedmodel.Long) // and cancelled at once
	c.send(object{"type": "abort", "id": "b"})
	if _, f := c.answer(again); !f.Cancelled {
		t.Errorf("a prompt that is cancelled at once: %+v", f)
	}
	if text, f := c.answer(c.prompt(playedmodel.Short)); text == "" || !f.OK {
		t.Errorf("the prompt after it: %q, %+v", text, f)
	}
}

// twenty has twenty of them answer at once. They start one after the other: OpenCode works on for twenty seconds of a processor once it is
// ready, so that others that start beside it are not ready in their minute.
func (a agent) twenty(t *testing.T, env []string) {
	var all []*process
	for range 20 {
		c := a.start(t, t.TempDir(), env)
		c.wait("ready")
		all = append(all, c)
	}
	ids := map[*process]string{}
	for _, c := range all {
		ids[c] = c.prompt(playedmodel.Short)
	}
	for _, c := range all {
		if text, f := c.answer(ids[c]); text == "" || !f.OK {
			t.Errorf("%q, %+v", text, f)
		}
	}
}
