package main_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// A talk that is left names each message that the server does not have, whatever ends the talk; the server answers those
// that it has, one of which was sent just before.
func TestLeavingWhatWaits(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		leave func(p *person)
		flags []string
	}{
		"quit":    {leave: func(p *person) { p.types("/quit\r") }},
		"ctrl-d":  {leave: func(p *person) { p.types("\x04") }},
		"sigterm": {leave: func(p *person) { _ = p.cmd.Process.Signal(syscall.SIGTERM) }},
		"plain":   {leave: func(p *person) { p.types("/quit\r") }, flags: []string{"--plain"}},
		"at once": {leave: func(p *person) { p.types("echo aa\recho bb\recho cc\r/quit\r") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLive(t, nil)
			s.call("/", "create_agent", `{"agent_id":"main"}`)
			p := atTerminal(t, s.home, s.cwd, 80, append(way.flags, "--connect="+s.url)...)
			p.types("echo hello\r")
			p.sees("you> echo hello", "\nhello")
			p.types("sleep 600\r")
			p.sees("you> sleep 600")
			if name != "at once" {
				p.types("echo aa\recho bb\recho cc\r")
				eventually(t, "aa is not at the server", func() (any, error) { return nil, s.waiting("main", 1) })
				if len(way.flags) == 0 {
					p.sees("queued: echo aa", "queued: echo bb", "queued: echo cc", "3 queued")
				}
			}
			way.leave(p)
			_ = p.leaves()
			text := p.text()
			if strings.Count(text, "not sent: ") != 2 || !strings.Contains(text, "\nnexus: not sent: echo bb\nnexus: not sent: echo cc") {
				t.Errorf("it left with\n%s", text)
			}
			id := gjson.Get(s.call("/", "list_agents", `{}`), "result.agents.0.request_id").Str
			s.call("/agent/main", "cancel", `{"request_id":"`+id+`"}`)
			eventually(t, "aa is not answered", func() (any, error) { return nil, s.waiting("main", 0) })
			s.send("main", "echo the last")
			messages := s.messages("main")
			if !strings.Contains(messages, "echo aa") || strings.Contains(messages, "echo bb") {
				t.Errorf("the agent has %s", messages)
			}
		})
	}
}

// sleeping is a server with the agent main, and a talk to it, in a turn that takes long.
func sleeping(t *testing.T) (*live, *person) {
	t.Helper()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"main"}`)
	p := atTerminal(t, s.home, s.cwd, 80, "--connect="+s.url)
	p.sees("main · offline")
	p.types("sleep 600\r")
	p.sees("calling sleep")
	return s, p
}

// waiting says how many sends wait for the agent, unless it is that many.
func (s *live) waiting(agent string, want int) error {
	for _, a := range gjson.Get(s.call("/", "list_agents", `{}`), "result.agents").Array() {
		if n := int(a.Get("queued").Int()); a.Get("agent_id").Str == agent && n != want {
			return fmt.Errorf("%d sends wait", n)
		}
	}
	return nil
}

// Each agent has a queue of its own: a message to one that is idle waits for no turn of another one, whose messages are
// not counted with it; and Esc at an agent that is idle cancels nothing.
func TestQueuesOfTwoAgents(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"main"}`)
	s.call("/", "create_agent", `{"agent_id":"other"}`)
	p := atTerminal(t, s.home, s.cwd, 80, "--connect="+s.url)
	p.sees("main · offline")
	p.types("sleep 600\r")
	p.sees("calling sleep")
	p.types("echo later\recho at last\r")
	p.sees("queued: echo later", "2 queued")
	eventually(t, "it is not at the server", func() (any, error) { return nil, s.waiting("main", 1) })
	for _, way := range []struct{ goes, there, back string }{
		{"/whisper other\r", "whisper mode: other", "/over\r"},
		{"/agent other\r", "\nother · offline", "/agent main\r"},
	} {
		p.types(way.goes)
		p.sees(way.there, "\nother · offline")
		if text := p.text(); strings.Contains(text, "queued") {
			t.Errorf("messages for main are queued for the other agent:\n%s", text)
		}
		said := "by " + way.goes[1:6]
		p.types("echo " + said + "\r")
		p.sees("you> echo "+said, "\n"+said+"\n", "\nother · offline") // its turn has ended
		p.types("half a line")
		p.sees("> half a line")
		p.types("\x1b")
		eventually(t, "the line is not emptied", func() (any, error) {
			if text := p.text(); strings.Contains(text, "half a line") {
				return nil, fmt.Errorf("it shows\n%s", text)
			}
			return nil, nil
		})
		p.types(way.back)
		p.sees("\nmain · ", "queued: echo later", "2 queued")
	}
	if err := s.busy("main"); err != nil || strings.Contains(p.written(), "cancelling") {
		t.Errorf("Esc at the other agent: main %v\n%s", err, p.text())
	}
	p.types("\x1b")
	p.sees("· cancelled", "\nlater\n", "\nat last\n")
	if text := p.text(); strings.Count(text, "you> echo later") != 1 {
		t.Errorf("it shows\n%s", text)
	}
}

// Messages that wait for an agent that is destroyed are named, and do not bring it back.
func TestDestroyingWhatMessagesWaitFor(t *testing.T) {
	t.Parallel()
	s, p := sleeping(t)
	p.types("echo later\recho at last\r")
	p.sees("queued: echo later", "2 queued")
	eventually(t, "it is not at the server", func() (any, error) { return nil, s.waiting("main", 1) })
	p.types("/destroy\ry\r")
	p.sees("destroyed main", "! not sent: echo at last", "! not sent: echo later", "no agent")
	if all := s.call("/", "list_agents", `{}`); gjson.Get(all, "result.agents.#").Int() != 0 {
		t.Errorf("there is %s", all)
	}
}

// A message that the server refuses, as it ends, is named with the reason.
func TestAMessageThatIsRefused(t *testing.T) {
	t.Parallel()
	s, p := sleeping(t)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server does not shut down", func() (any, error) {
		if answer := s.send("other", "hello"); !strings.Contains(answer, "nothing was accepted") {
			return nil, fmt.Errorf("it answers %s", answer)
		}
		return nil, nil
	})
	p.types("echo refused\r")
	p.sees("! not sent: echo refused: ", "nothing was accepted")
	_ = s.cmd.Process.Kill() // it would wait for the turn
	_ = s.cmd.Wait()
}

// Ctrl-L and /clear empty the screen but for what changes; what was on it is in the scrollback, and the talk goes on.
func TestEmptyingTheScreen(t *testing.T) {
	t.Parallel()
	begin, _, _ := talker(t)
	p := begin(80, "--fresh")
	p.sees(".1 · offline")
	for i, key := range []string{"\x0c", "/clear\r"} {
		said := fmt.Sprintf("number %d", i)
		p.types("echo " + said + "\r")
		p.sees("you> echo "+said, "\n"+said+"\n", "of 128.0k tokens")
		eventually(t, "the turn has not ended", func() (any, error) { // what is told of it then comes onto the screen
			if shown := p.shown(); !strings.Contains(shown, "\n"+said+"\n") || !strings.Contains(shown, ">\n.1 · offline") {
				return nil, fmt.Errorf("it shows\n%s", shown)
			}
			return nil, nil
		})
		p.types(key)
		eventually(t, "the screen is not empty", func() (any, error) {
			if shown := strings.TrimSpace(p.shown()); !strings.HasPrefix(shown, ">\n.1 · offline") {
				return nil, fmt.Errorf("it shows\n%s", shown)
			}
			return nil, nil
		})
		p.sees("you> echo "+said, "\n"+said+"\n")
		p.types("echo again\r")
		p.sees("you> echo again", "\nagain\n")
	}
	if text := p.text(); strings.Count(text, "offline") != 1 {
		t.Errorf("what changes is left behind:\n%s", text)
	}
}

// A talk with a key from a file has that key for the verbs, too.
func TestVerbsOfATalkWithAKeyFile(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.home, "server-"+at.Port()+".key")
	p := atTerminal(t, s.home, s.cwd, 80, "--plain", "--fresh", "--port", at.Port(), "--api-key", "@"+file)
	p.sees("has proved to be")
	p.types("/list\r")
	p.sees("AGENT", "STATE")
}

// A stop, in the talk or elsewhere, sends nothing of what waits in the talk: all of it is named in its order, also what the server had, and the agent
// stays stopped, until somebody says something to it.
func TestStoppingWhatMessagesWaitFor(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(s *live, p *person){
		"here":      func(_ *live, p *person) { p.types("/stop\r") },
		"elsewhere": func(s *live, _ *person) { s.call("/agent/main", "shutdown", `{}`) },
		"not shown": func(s *live, p *person) {
			p.types("/agent other\r")
			p.sees("\nother · offline")
			s.call("/agent/main", "shutdown", `{}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := sleeping(t)
			s.call("/", "create_agent", `{"agent_id":"other"}`)
			p.types("echo one\recho two\recho three\r")
			p.sees("queued: echo one", "3 queued")
			eventually(t, "it is not at the server", func() (any, error) { return nil, s.waiting("main", 1) })
			stop(s, p)
			p.sees("! not sent: echo one\n! not sent: echo two\n! not sent: echo three\n")
			if name == "here" {
				p.sees("stopped main: the next request to it starts it again")
			}
			if all := s.call("/", "list_agents", `{}`); gjson.Get(all, `result.agents.#(agent_id=="main").state`).Str != "stopped" {
				t.Errorf("it shows\n%s\nand there is %s", p.text(), all)
			}
			if name == "not shown" {
				return
			}
			p.types("echo again\r")
			p.sees("you> echo again", "\nagain\n")
			if text := p.text(); strings.Contains(text, "you> echo one") || strings.Contains(text, "you> echo two") || strings.Contains(text, "cancelled: ") {
				t.Errorf("it shows\n%s", text)
			}
		})
	}
}
