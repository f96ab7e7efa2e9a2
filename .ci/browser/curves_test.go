package browser

import (
	"strings"
	"sync"
	"testing"
)

// The page draws what the agents take, of all and of each one, and forgets it with the key.
func TestCurves(t *testing.T) {
	s := serve(t, t.TempDir())
	for _, agent := range []string{"alice", "bob"} {
		s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"`+agent+`"}}`)
	}
	s.rpc("/agent/bob", `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)
	b := open(t, s.url+"/")
	b.enter(s)
	b.says("#takes", "MiB")
	b.until(`document.querySelectorAll("#takes path[d*=L]").length === 3`)
	b.until(`/\d %/.test(document.querySelector("#takes").innerText)`)
	b.look(t, "the list, with curves")
	b.save(t, "curves.png")
	const cells = `[...document.querySelectorAll("#rows tr")].map((r) => r.querySelector(".cpu").innerText + (r.querySelector("path").getAttribute("d") ? " drawn" : "")).join("\n")`
	if got := eval[string](b, cells); !strings.HasPrefix(got, "0.") || !strings.HasSuffix(got, "% drawn\n–") {
		t.Errorf("the processor of alice and bob is shown as %q", got)
	}
	b.press("rows", "alice")
	b.until(`document.querySelectorAll("#agent-takes path[d*=L]").length === 3`)
	b.press("rows", "bob")
	b.until(`document.querySelector("#agent-takes").hidden`)
	b.click("#forget")
	b.says("#door", "Which key?")
	if eval[bool](b, `[...document.querySelectorAll(".takes path")].some((p) => p.getAttribute("d"))`) {
		t.Error("curves are there without a key")
	}
	b.clean()
}

// The headings sort the list, also while it changes, and who has the focus in a row that moves keeps it.
func TestSorting(t *testing.T) {
	s := serve(t, t.TempDir())
	for _, agent := range []string{"alice", "bob", "carol"} {
		s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"`+agent+`"}}`)
	}
	s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)
	b := open(t, s.url+"/")
	b.enter(s)
	order := func(want string) {
		t.Helper()
		b.until(`[...document.querySelectorAll("#rows td:first-child")].map((e) => e.innerText).join(" ") === "` + want + `"`)
	}
	order("alice bob carol")
	b.press("rows", "bob")
	eval[bool](b, `[...document.querySelectorAll("#rows button")].find((e) => e.innerText === "bob").focus(), true`)
	eval[bool](b, `document.querySelector("[data-sort=state]").click(), true`)
	order("bob carol alice")
	eval[bool](b, `document.querySelector("[data-sort=state]").click(), true`)
	order("alice carol bob")
	if at := eval[string](b, `document.activeElement.innerText`); at != "bob" {
		t.Errorf("after its row was moved, the focus is on %q", at)
	}
	s.rpc("/agent/carol", `{"jsonrpc":"2.0","id":1,"method":"shutdown"}`)
	order("carol alice bob")
	b.click("[data-sort=agent]")
	order("alice bob carol")
	if at := eval[string](b, `document.querySelector("th[aria-sort]").innerText + document.querySelector("th[aria-sort]").getAttribute("aria-sort")`); at != "Agentascending" {
		t.Errorf("the heading says %q", at)
	}
	b.clean()
}

// The list has how many messages wait for an agent, as nexus top has it, and sorts by that.
func TestQueues(t *testing.T) {
	s := serve(t, t.TempDir())
	for _, agent := range []string{"alice", "bob"} {
		s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"`+agent+`"}}`)
	}
	b := open(t, s.url+"/")
	b.enter(s)
	var sends sync.WaitGroup
	send := func(message string) {
		sends.Go(func() {
			s.post("/agent/bob", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"`+message+`"}}`)
		})
	}
	send("sleep 600")
	b.says("#rows", "busy")
	send("then this")
	send("and this")
	b.until(`[...document.querySelectorAll("#rows .queue")].map((e) => e.innerText).join(" ") === "– 2"`)
	eval[bool](b, `document.querySelector("[data-sort=queue]").click(), true`)
	b.until(`[...document.querySelectorAll("#rows td:first-child")].map((e) => e.innerText).join(" ") === "bob alice"`)
	b.look(t, "the list, with a queue")
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"destroy_agent","params":{"agent_id":"bob"}}`)
	sends.Wait()
	b.clean()
}
