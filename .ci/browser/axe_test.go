package browser

import (
	"fmt"
	"os"
	"testing"

	"github.com/chromedp/cdproto/emulation"
)

// TestAxe has axe-core look for what keeps people out who see, hear or move otherwise:
// it finds nothing, wherever the page is, in the light and in the dark, wide and narrow.
// $NEXUS_AXE is its axe.min.js, which .ci/run fetches.
func TestAxe(t *testing.T) {
	path := os.Getenv("NEXUS_AXE")
	if path == "" {
		t.Log("not run, as NEXUS_AXE names no axe.min.js")
		return
	}
	axe, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, t.TempDir())
	s.create("alice", "My name is Alice", "list .")
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"bob","approvals":"ask"}}`)
	s.post("/agent/bob", `{"jsonrpc":"2.0","method":"send","params":{"content":"run make deploy"}}`)
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"gone"}}`)
	s.rpc("/agent/gone", `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)

	b := open(t, s.url+"/")
	eval[int](b, string(axe)+"\n;1")
	check := func(what string) {
		t.Helper()
		for _, screen := range []struct {
			scheme string
			width  int64
		}{{"light", 420}, {"dark", 420}, {"dark", 1360}, {"light", 1360}} {
			b.scheme(screen.scheme)
			command(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: screen.width, Height: 860, DeviceScaleFactor: 1})
			found := eval[[]string](b, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.flatMap((v) =>
				v.nodes.map((n) => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary)))`)
			for _, one := range found {
				t.Errorf("%s, %s, %d pixels wide: %s", what, screen.scheme, screen.width, one)
			}
		}
	}
	check("the door")
	b.write("#key", "nonsense\r")
	b.says("#key-error", "Invalid API key")
	check("a wrong key")
	b.empty("#key")
	b.enter(s)
	b.says("#asked-list", "make deploy")
	check("the agents and a question")
	b.press("rows", "alice")
	b.says("#history", "Nice to meet you, Alice!")
	b.click("#saved summary")
	b.says("#saved-list", "alice")
	b.click("#create summary")
	b.click("#history summary")
	b.write("#message", "What is my name?\r")
	b.says("#sent .outcome", "completed")
	check("a conversation, the saved sessions and the form for an agent")
	b.click("#destroy")
	b.says("#sure", fmt.Sprintf("Destroy %s?", "alice"))
	check("the question before the end of an agent")
}
