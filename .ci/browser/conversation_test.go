package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// code is the address of create_page_code.
func (s *server) code() string {
	s.t.Helper()
	_, url, found := strings.Cut(s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_page_code"}`), `"url":"`)
	url, _, _ = strings.Cut(url, `"`)
	if !found {
		s.t.Fatal("create_page_code gives no address")
	}
	return url
}

func (s *server) create(agent string, messages ...string) {
	s.t.Helper()
	s.rpc("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":%q}}`, agent))
	for _, message := range messages {
		s.send(agent, message)
	}
}

func (s *server) send(agent, message string) {
	s.t.Helper()
	s.rpc("/agent/"+agent, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":%q}}`, message))
}

// A code opens the page without a key, once, and is nowhere afterwards.
func TestCode(t *testing.T) {
	s := serve(t, t.TempDir())
	s.create("alice")
	address := s.code()
	b := open(t, address)
	b.says("#rows", "alice")
	b.says("#link", "Connected")
	where := eval[string](b, `JSON.stringify([location.href, history.length, document.documentElement.outerHTML])`)
	if strings.Contains(where, "nxc_") || strings.Contains(where, s.key) {
		t.Errorf("the code or the key is to be found in the page: %s", where)
	}
	b.clean()

	again := open(t, address)
	again.says("#key-error", "Invalid code")
	again.says("#key-error", "nexus open")
	eval[int](again, fmt.Sprintf(`(location.href = %q, 1)`, s.code())) // the page that is open takes another
	again.says("#rows", "alice")
}

// The conversation of an agent that is opened is there, whoever had it, with calls, cost
// and older messages; what another client sends meanwhile comes by itself.
func TestConversation(t *testing.T) {
	s := serve(t, t.TempDir())
	s.create("alice", "My name is Alice", "list .")
	for n := range 25 {
		s.send("alice", fmt.Sprintf("echo number %d!", n))
	}
	b := open(t, s.code())
	b.click("#rows button")
	b.says("#history", "number 24!")
	b.says("#cost", "tokens in")
	b.says("#cost", "Cost: $0.0000")
	if eval[bool](b, `document.querySelector("#history").innerText.includes("My name is Alice")`) {
		t.Error("all of a long conversation is shown at once")
	}
	if away := eval[float64](b, `(() => { const t = document.querySelector("#talk"); return t.scrollHeight - t.scrollTop - t.clientHeight; })()`); away > 24 {
		t.Errorf("the end of the conversation is %v pixels away", away)
	}
	b.says("#earlier", "Earlier messages")
	b.click("#earlier")
	b.says("#history", "My name is Alice")
	b.says("#history", "Calls list_directory")
	b.until("!" + visible("#earlier"))

	s.send("alice", "echo from elsewhere!")
	b.says("#history", "from elsewhere!")
	b.write("#message", "What is my name?\r")
	b.says("#sent .answer", "Your name is Alice")
	b.says("#sent .outcome", "completed")
	s.send("alice", "echo once more!")
	b.says("#history", "once more!")
	if twice := eval[int](b, `document.querySelector("#talk").innerText.split("What is my name?").length`); twice != 2 {
		t.Errorf("what was sent from here is shown %d times", twice-1)
	}
	if href := eval[string](b, `document.querySelector("header a").href`); href != s.url+"/docs" {
		t.Errorf("the link to the methods leads to %s", href)
	}
	b.clean()
}

// A saved session can be found and opened, also by a page that shows no agent.
func TestSavedSessions(t *testing.T) {
	s := serve(t, t.TempDir())
	s.create("alice", "My name is Alice")
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"destroy_agent","params":{"agent_id":"alice"}}`)
	b := open(t, s.code())
	b.says("#empty", "No agent runs here")
	b.click("#saved summary")
	b.says("#saved-list", "alice")
	b.says("#saved-list", "2 messages, offline")
	b.do(chromedp.Focus(chromedp.CSS("#saved-list button")), chromedp.KeyEvent("\r"))
	b.says("#agent-title", "alice")
	b.until(`document.activeElement.id === "agent-title"`)
	b.says("#history", "Nice to meet you, Alice!")
	b.clean()
}

// The conversation of a stopped agent is not worth its start, until a person wants it.
func TestStoppedConversation(t *testing.T) {
	s := serve(t, t.TempDir())
	s.create("alice", "My name is Alice")
	s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)
	b := open(t, s.code())
	b.says("#rows .state", "stopped")
	b.click("#rows button")
	b.says("#earlier", "Start the agent")
	b.says("#rows .state", "stopped")
	b.click("#earlier")
	b.says("#history", "Nice to meet you, Alice!")
	b.says("#rows .state", "ready")
	b.clean()
}
