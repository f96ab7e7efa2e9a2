package agents

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// agent is one that npm brings.
type agent struct {
	name, protocol string
	pkg, version   string // of npm
	bin            string
	arguments      []string
	// env is what it needs to find the played model.
	env func(t *testing.T, url, dir string) []string
	// asks says that it asks before it runs a command.
	asks bool
}

var agents = []agent{
	{
		name: "claude", protocol: "claude", pkg: "@anthropic-ai/claude-code", version: "2.1.331", bin: "claude", asks: true,
		env: func(_ *testing.T, url, _ string) []string {
			return []string{"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=any", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
		},
	},
	{
		name: "pi", protocol: "pi", pkg: "@mariozechner/pi-coding-agent", version: "0.73.1", bin: "pi", arguments: []string{"--provider", "anthropic"},
		env: func(t *testing.T, url, dir string) []string {
			settings, _ := json.Marshal(object{"providers": object{"anthropic": object{"baseUrl": url}}}) // of strings
			if err := os.WriteFile(filepath.Join(dir, "models.json"), settings, 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{"ANTHROPIC_API_KEY=any", "PI_OFFLINE=1", "PI_CODING_AGENT_DIR=" + dir}
		},
	},
}

func (a agent) dir(t *testing.T) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "nexus-agents", a.name+"-"+a.version)
}

func (a agent) path(t *testing.T) string {
	return filepath.Join(a.dir(t), "node_modules", ".bin", a.bin)
}

// install installs it, unless it is there.
func (a agent) install(t *testing.T) {
	if _, err := os.Stat(a.path(t)); err == nil {
		return
	}
	if err := os.MkdirAll(a.dir(t), 0o700); err != nil {
		t.Fatal(err)
	}
	npm := exec.Command("npm", "install", "--no-fund", "--no-audit", "--prefix", a.dir(t), a.pkg+"@"+a.version)
	if said, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("not run: %s %s, as it cannot be installed: %v\n%s", a.pkg, a.version, err, said)
	}
}

// card is what was found.
type card struct {
	Package   string   `json:"package"`
	Version   string   `json:"version"`
	Protocol  string   `json:"protocol"`
	Command   []string `json:"command"`
	StartMS   int64    `json:"start_ms"`   // until ready, nexus-child included
	MemoryMiB int64    `json:"memory_mib"` // resident, of all its processes, after a turn
	CancelMS  int64    `json:"cancel_ms"`  // in mid-text, until the turn's end
	Asks      bool     `json:"asks"`       // before it runs a command
	Resumed   string   `json:"resumed"`    // after kill -9 in mid-text
	Partial   bool     `json:"partial"`    // it remembers the text that was cut off
}

// TestAgents drives each agent through a conversation and its ends.
func TestAgents(t *testing.T) {
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			a.install(t)
			found := card{Package: a.pkg, Version: a.version, Protocol: a.protocol, Command: append([]string{a.bin}, a.arguments...)}
			m := serve()
			t.Cleanup(func() {
				m.CloseClientConnections()
				m.Close()
			})
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "work"), 0o700); err != nil {
				t.Fatal(err)
			}
			env := a.env(t, m.URL, dir)
			began := time.Now()
			c := a.start(t, dir, env)
			found.StartMS = time.Since(began).Milliseconds()
			a.converse(t, c, dir, &found)
			a.crash(t, c, dir, env, &found)
			if os.Getenv("UPDATE") != "" {
				a.write(t, found)
			}
			if text, err := json.Marshal(found); err == nil {
				t.Log(string(text))
			}
		})
	}
}

// converse has a conversation: memory, a call and cancels.
func (a agent) converse(t *testing.T, c *child, dir string, found *card) {
	if text, end := c.answer(c.prompt("hello")); text != "you said: hello" || !end.OK {
		t.Errorf("hello: %q, %+v", text, end)
	}
	found.MemoryMiB = memory(c.cmd.Process.Pid)
	id := c.prompt("run echo made >made")
	f := c.until("a question or the end", func(f frame) bool { return f.Type == "permission_request" || f.Type == "response" && f.ID == id })
	if found.Asks = f.Type == "permission_request"; found.Asks {
		c.send(object{"type": "permission_response", "id": "p", "request_id": f.RequestID, "decision": "allow_once"})
		c.answer(id)
	}
	if made, err := os.ReadFile(filepath.Join(dir, "work", "made")); string(made) != "made\n" || found.Asks != a.asks {
		t.Errorf("run: %q, %v, it asked: %v", made, err, found.Asks)
	}
	id = c.prompt("talk")
	c.say("word20 ")
	began := time.Now()
	c.send(object{"type": "abort", "id": "a"})
	if _, end := c.answer(id); !end.Cancelled {
		t.Errorf("cancel: %+v", end)
	}
	found.CancelMS = time.Since(began).Milliseconds()
	id = c.prompt("talk") // and at once
	c.send(object{"type": "abort", "id": "b"})
	if _, end := c.answer(id); !end.Cancelled {
		t.Errorf("cancel at once: %+v", end)
	}
	if text, _ := c.answer(c.prompt("remember")); !strings.Contains(text, "hello") || !strings.Contains(text, "run echo made") {
		t.Errorf("remember: %q", text)
	}
}

// crash kills the agent in mid-text and goes on, then kills nexus-child.
func (a agent) crash(t *testing.T, c *child, dir string, env []string, found *card) {
	c.prompt("talk")
	c.say("word20 ")
	all := descendants(c.cmd.Process.Pid)
	for pid, line := range all {
		if strings.Contains(line, a.bin) && !strings.Contains(line, "nexus-child") {
			_ = syscall.Kill(pid, syscall.SIGKILL) // one of them may have ended with the first
		}
	}
	for range c.frames { // up to its end
	}
	<-c.ended
	if code := c.cmd.ProcessState.ExitCode(); code != 70 {
		t.Errorf("exit status of nexus-child: %d, want 70", code)
	}
	gone(t, all)
	c = a.start(t, dir, env, "--continue", c.ready.SessionID)
	text, _ := c.answer(c.prompt("remember"))
	if !strings.Contains(text, "hello") {
		t.Errorf("resumed: %q", text)
	}
	found.Partial = strings.Contains(text, "word20")
	c.send(object{"type": "get_state", "id": "s"})
	_, state := c.answer("s")
	if found.Resumed = state.Program.Resumed; found.Resumed != "program" {
		t.Errorf("resumed by %q", found.Resumed)
	}
	c.prompt("talk")
	c.say("word20 ")
	all = descendants(c.cmd.Process.Pid)
	_ = c.cmd.Process.Kill()
	for range c.frames {
	}
	<-c.ended
	gone(t, all)
}

// memory is the resident memory of all processes below one, in MiB.
func memory(pid int) (mib int64) {
	for p, line := range descendants(pid) {
		if strings.Contains(line, "nexus-child") {
			continue
		}
		status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p), "statm"))
		if fields := strings.Fields(string(status)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64) // as Linux writes it
			mib += pages * int64(os.Getpagesize()) >> 20
		}
	}
	return mib
}

func (a agent) write(t *testing.T, found card) {
	text, _ := json.MarshalIndent(found, "", "  ") // of plain members
	if err := os.WriteFile(filepath.Join("..", "..", "fixtures", "agents-of-others", filepath.Base(a.pkg)+".json"), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
