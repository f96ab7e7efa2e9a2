package browser

import (
	"encoding/json"
	"strings"
	"testing"
)

// scoped makes a key for less, with the parameters of create_key.
func (s *server) scoped(params string) (key, id string) {
	s.t.Helper()
	var made struct {
		Result struct {
			Key string `json:"key"`
			ID  string `json:"key_id"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_key","params":`+params+`}`)), &made); err != nil {
		s.t.Fatal(err)
	}
	return made.Result.Key, made.Result.ID
}

// A key for reading shows all, says so, and offers nothing that it may not do.
func TestReadOnlyKey(t *testing.T) {
	s := serve(t, t.TempDir())
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"alice","approvals":"ask"}}`)
	key, _ := s.scoped(`{"scope":"read"}`)
	b := open(t, s.url+"/")
	b.write("#key", key+"\r")
	b.says("#scope", "good for reading alone")
	b.click("#rows button")
	b.says("#flow", "live")
	b.says("#facts", "offline")
	s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"echo seen"}}`)
	b.says("#events", "seen")
	s.rpc("/agent/alice", `[{"jsonrpc":"2.0","id":1,"method":"get_model"},{"jsonrpc":"2.0","method":"send","params":{"content":"run mkdir made"}}]`)
	b.says("#asked-list", "mkdir made")
	for _, selector := range []string{"#send-form", "#create", "#destroy", "#asked-list .row"} {
		if eval[bool](b, visible(selector)) {
			t.Errorf("%s is shown", selector)
		}
	}
	b.clean()

	// With another key in the same page, all is there again.
	b.click("#forget")
	b.enter(s)
	b.click("#rows button")
	for _, selector := range []string{"#send-form", "#create", "#destroy", "#asked-list .row"} {
		b.until(visible(selector))
	}
	if eval[bool](b, visible("#scope")) {
		t.Error("a full key is told of as one for less")
	}
	b.clean()
}

// A key for one agent shows that agent, and does with it what the page can; it does
// not start it, and its end closes the page.
func TestAgentKey(t *testing.T) {
	s := serve(t, t.TempDir())
	for _, id := range []string{"alice", "bob"} {
		s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"approvals":"ask","agent_id":"`+id+`"}}`)
	}
	key, id := s.scoped(`{"scope":"agent","agent_id":"alice"}`)
	b := open(t, s.url+"/")
	b.write("#key", key+"\r")
	b.says("#scope", "good for alice alone")
	b.says("#agent-title", "alice")
	b.says("#facts", "offline")
	b.says("#flow", "live")
	if text := b.text(); strings.Contains(text, "bob") {
		t.Errorf("another agent is shown: %s", text)
	}
	for _, selector := range []string{"#create", "#destroy"} {
		if eval[bool](b, visible(selector)) {
			t.Errorf("%s is shown", selector)
		}
	}
	b.write("#message", "My name is Alice\r")
	b.says("#talk .answer", "Nice to meet you, Alice!")
	b.until(`document.querySelector("#rows td:nth-child(5)").innerText.includes("/")`)
	b.write("#message", "run mkdir made\r")
	b.says("#asked-list", "mkdir made")
	b.press("asked-list", "Deny")
	b.until("!" + visible("#asked"))
	b.until(`document.querySelectorAll("#talk li.running").length === 0`)

	s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)
	b.says("#rows .state", "stopped")
	eval[string](b, `new Promise((r) => setTimeout(r, 5000, ""))`) // two looks more
	if agents := s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"list_agents"}`); !strings.Contains(agents, `"state":"stopped"`) {
		t.Errorf("the page has started it: %s", agents)
	}
	b.write("#message", "My name is Bea\r")
	b.says("#talk .answer", "Nice to meet you, Bea!")

	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"revoke_key","params":{"key_id":"`+id+`"}}`)
	b.says("#key-error", "Invalid API key")
	b.clean()
}

// A page with an agent's key shows the agent that is created later, that it is
// destroyed, without bringing it back, and the next one of its name.
func TestAgentKeyFollowsLives(t *testing.T) {
	s := serve(t, t.TempDir())
	key, _ := s.scoped(`{"scope":"agent","agent_id":"late"}`)
	b := open(t, s.url+"/")
	b.write("#key", key+"\r")
	b.says("#empty", "There is no agent late")
	b.says("#flow", "live")
	for _, life := range []string{"first", "second"} {
		s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"late"}}`)
		b.says("#rows .state", "ready")
		b.says("#facts", "offline")
		s.rpc("/agent/late", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"echo the `+life+`"}}`)
		b.says("#events", "the "+life)
		s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"destroy_agent","params":{"agent_id":"late"}}`)
		b.says("#empty", "There is no agent late")
		b.says("#flow", "the agent is gone")
	}
	eval[string](b, `new Promise((r) => setTimeout(r, 5000, ""))`) // two looks more
	if agents := s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"list_agents"}`); !strings.Contains(agents, `"agents":[]`) {
		t.Errorf("the page has brought it back: %s", agents)
	}
	b.clean()
}

// Where the server wants requests signed, the page signs them: reading, talking,
// cancelling and approving.
func TestSignedRequests(t *testing.T) {
	s := serve(t, t.TempDir(), "0", "--require-signatures")
	if answer := s.post("/", `{"jsonrpc":"2.0","id":1,"method":"list_agents"}`); !strings.Contains(answer, "Signature required") {
		t.Fatalf("signatures are not required: %s", answer)
	}
	b := open(t, s.url+"/")
	b.enter(s)
	b.click("#create summary")
	b.write("#new-id", "alice\r")
	b.says("#agent-title", "alice")
	b.says("#flow", "live")
	b.write("#message", "My name is Zoë \"the\" <b>\\ \r") // whatever it says is signed as it is sent
	b.says("#talk .answer", "Zoë")
	b.write("#message", "write a long essay\r")
	b.says("#talk .running .outcome", "Answering")
	b.clickMoving("#talk .running button")
	b.says("#talk .outcome", "Cancelled")
	b.write("#message", "run mkdir made\r")
	b.says("#asked-list", "mkdir made")
	b.press("asked-list", "Deny")
	b.until("!" + visible("#asked"))
	b.clean()
}
