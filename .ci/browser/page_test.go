package browser

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// visible is an expression that says whether an element is shown.
func visible(selector string) string {
	return fmt.Sprintf(`document.querySelector(%q).checkVisibility()`, selector)
}

func TestKey(t *testing.T) {
	s := serve(t, t.TempDir())
	b := open(t, s.url+"/")
	b.says("#door", "Which key?")
	if eval[bool](b, visible("#desk")) {
		t.Error("agents are shown before there is a key")
	}
	b.write("#key", "nxk_"+strings.Repeat("A", 43)+"\r")
	b.says("#key-error", "Invalid API key")

	b.enter(s)
	b.says("#empty", "No agent runs here")
	if at := eval[string](b, `document.activeElement.id`); at != "desk" {
		t.Errorf("after the key was typed, the focus is on %q", at)
	}
	kept := `JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, document.documentElement.outerHTML,
		[...document.querySelectorAll("input")].map((i) => i.value)])`
	if where := eval[string](b, kept); strings.Contains(where, s.key) {
		t.Errorf("the key is to be found in the page: %s", where)
	}
	b.clean()

	b.do(chromedp.Reload())
	b.says("#door", "Which key?")
	b.enter(s)
	b.click("#forget")
	b.says("#door", "Which key?")
	b.says("#link", "No key")
}

// Everything that a person does with one agent, by the keyboard where that is
// usual: create, talk, cancel, destroy.
func TestAgent(t *testing.T) {
	s := serve(t, t.TempDir())
	b := open(t, s.url+"/")
	b.enter(s)

	b.click("#create summary")
	b.write("#new-id", "no such name!")
	b.click("#create-form button")
	b.says("#create-error", "agent_id")
	b.empty("#new-id")
	b.write("#new-id", "alice\r")
	b.says("#agent-title", "alice")
	b.says("#rows .state", "ready")
	b.says("#facts", "offline")
	b.says("#flow", "live")

	b.write("#message", "My name is Alice\r")
	b.says("#talk .answer", "Nice to meet you, Alice!")
	b.says("#talk .outcome", "completed")
	b.says("#events", "turn_end")
	b.says("#events", "Nice to meet you, Alice!")
	b.until(`document.querySelector("#rows td:nth-child(5)").innerText.includes("/")`)

	b.write("#message", "write a long essay\r")
	b.says("#talk .running .outcome", "Answering") // it is shown while it is written
	b.says("#rows .state", "busy")
	b.clickMoving("#talk .running button")
	b.says("#talk .outcome", "Cancelled")
	b.says("#events", "cancelled")

	b.write("#message", "fail\r")
	b.says("#talk .outcome.bad", "fail")

	b.click("#destroy")
	b.says("#sure", "Destroy alice?")
	b.click("#sure button[value=no]")
	b.click("#destroy")
	b.click("#sure button[value=yes]")
	b.says("#empty", "No agent runs here")
	b.until("!" + visible("#agent"))
	b.clean()
}

// A browser that does not start, as on a busy machine, is started once more.
func TestBrowserStartsOnceMore(t *testing.T) {
	dir := t.TempDir()
	starter := filepath.Join(dir, "browser")
	script := fmt.Sprintf("#!/bin/sh\nmkdir '%s/tried' 2>/dev/null && exit 1\nexec '%s' \"$@\"\n", dir, browser)
	if err := os.WriteFile(starter, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := serve(t, t.TempDir())
	b := open(t, s.url+"/", chromedp.ExecPath(starter))
	b.says("#door", "Which key?")
}

// A form that is sent twice opens the page once: there is one look at a time.
func TestKeyTwice(t *testing.T) {
	s := serve(t, t.TempDir())
	b := open(t, s.url+"/")
	most := eval[int](b, `(async () => {
		let now = 0, most = 0;
		const real = window.fetch;
		window.fetch = async (...given) => {
			if (given[0] !== "/") return real(...given);
			most = Math.max(most, ++now);
			await new Promise((r) => setTimeout(r, 1500)); // so that two that look meet
			return real(...given).finally(() => now--);
		};
		document.querySelector("#key").value = "`+s.key+`";
		for (let i = 0; i < 3; i++) document.querySelector("#key-form").requestSubmit();
		await new Promise((r) => setTimeout(r, 9000));
		return most;
	})()`)
	b.says("#link", "Connected")
	if most != 1 {
		t.Errorf("%d looks went on at once", most)
	}
}

// What could not be done stays to be read until it is dismissed or the next thing is done.
func TestDestroyFails(t *testing.T) {
	s := serve(t, t.TempDir())
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"alice"}}`)
	r := relayTo(t, s)
	b := open(t, r.url+"/", throughRelay)
	b.enter(s)
	b.click("#rows button")
	b.says("#flow", "live")
	r.cut()
	b.click("#destroy")
	b.click("#sure button[value=yes]")
	b.says("#deed-error", "alice was not destroyed: the server does not answer")
	r.mend()
	b.says("#link", "Connected")
	eval[string](b, `new Promise((r) => setTimeout(r, 3000, ""))`) // a look more
	b.says("#deed-error", "alice was not destroyed")
	b.click("#dismiss")
	b.until("!" + visible("#deed"))
	b.clean()
}

func TestApprovals(t *testing.T) {
	s := serve(t, t.TempDir())
	site := t.TempDir()
	s.rpc("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"careful","approvals":"ask","cwd":%q}}`, site))
	b := open(t, s.url+"/")
	b.enter(s)
	b.click("#rows button")
	for _, step := range []struct {
		press string
		made  bool
	}{{"Deny", false}, {"Allow once", true}} {
		b.write("#message", "run mkdir made\r")
		b.says("#asked-list", "mkdir made")
		b.says("#asked-list", "For the session: shell, job_start: commands of nothing but mkdir, in "+site+" and below, that name nothing elsewhere")
		b.says("#rows .asks", "1")
		b.press("asked-list", step.press)
		b.until("!" + visible("#asked"))
		b.until(`document.activeElement.id === "agent-title"`)
		b.until(`document.querySelectorAll("#talk li.running").length === 0`)
		if _, err := os.Stat(filepath.Join(site, "made")); (err == nil) != step.made {
			t.Errorf("after %s: %v, want it made: %v", step.press, err, step.made)
		}
	}

	// One that is answered elsewhere goes away by itself.
	b.write("#message", "run mkdir other\r")
	b.says("#asked-list", "mkdir other")
	waits := s.rpc("/agent/careful", `{"jsonrpc":"2.0","id":1,"method":"get_permissions"}`)
	_, rest, _ := strings.Cut(waits, `"pending":[{"request_id":"`)
	request, _, _ := strings.Cut(rest, `"`)
	s.rpc("/agent/careful", `{"jsonrpc":"2.0","id":1,"method":"respond_permission","params":{"request_id":"`+request+`","decision":"deny"}}`)
	b.until("!" + visible("#asked"))
	b.clean()
}

// All that somebody decides by is shown: what a program reads as well as the command, and a command that
// is in no input. Of what is cut the page says so.
func TestApprovalsShowAll(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("x", 20_000)
	scenario := filepath.Join(dir, "scenario.json")
	if err := os.WriteFile(scenario, []byte(`{"turns":[
		{"match":"first","steps":[{"tool":{"name":"shell","input":{"command":"python3 - --check","stdin":"import os","terminal":true}}},{"text":"ok"}]},
		{"match":"second","steps":[{"tool":{"name":"mcp_docs_connect","input":{}}},{"text":"ok"}]},
		{"match":"third","steps":[{"tool":{"name":"job_start","input":{"command":"make all"}}},{"text":"ok"}]},
		{"match":"fourth","steps":[{"tool":{"name":"shell","input":{"command":"bash","stdin":"`+long+`"}}},{"text":"ok"}]},
		{"match":"fifth","steps":[{"tool":{"name":"write_file","input":{"path":"/nowhere/a","content":"`+long+`"}}},{"text":"ok"}]}],"after":"offline"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".nexus3"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".nexus3", "mcp.json"), []byte(`{"mcpServers":{"docs":{"command":"cat","env":{"A":"b"}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, filepath.Join(dir, "home"), "0", "--scenario", scenario)
	s.rpc("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"careful","approvals":"ask","cwd":%q}}`, dir))
	b := open(t, s.url+"/")
	b.enter(s)
	b.click("#rows button")
	for _, step := range []struct{ say, want string }{
		{"first", "python3 - --check|{\n \"stdin\": \"import os\",\n \"terminal\": true\n}"}, {"second", "A=b cat"}, {"third", "make all"},
		{"fourth", "bash|{\n \"stdin\": \"" + long + "\"\n}"},
	} {
		b.write("#message", step.say+"\r")
		b.until(visible("#asked"))
		b.until(fmt.Sprintf(`[...document.querySelectorAll("#asked-list pre")].map((e) => e.textContent).join("|") === %q`, step.want))
		b.press("asked-list", "Deny")
		b.until("!" + visible("#asked"))
		b.until(`document.querySelectorAll("#talk li.running").length === 0`)
	}
	b.write("#message", "fifth\r")
	b.until(`[...document.querySelectorAll("#asked-list p")].some((e) => /^Of the input's 200\d\d bytes only the beginning and the end are here\.$/.test(e.textContent))`)
	b.clean()
}

// Whatever agents say is shown as text, wherever it is shown.
func TestHostileText(t *testing.T) {
	const bad = `<img src=x onerror="document.title='ran'"><script>document.title='ran'</script>`
	dir := t.TempDir()
	scenario := filepath.Join(dir, "scenario.json")
	if err := os.WriteFile(scenario, fmt.Appendf(nil, `{"turns":[
		{"match":"turn","steps":[{"text":"\u202eevil\u202c \u0007 a\u200bb \u2066c\u2069 d\r\tsaid\nso"}]},
		{"match":"talk","steps":[{"text":%q},{"thinking":%[1]q},{"tool":{"name":"read_file","input":{"path":%[1]q}}},{"text":"said"}]},
		{"match":"ask","steps":[{"tool":{"name":"shell","input":{"command":"mkdir '%[2]s' \u202e"}}},{"text":"asked"}]},
		{"match":"fail","steps":[{"error":{"message":%[1]q}}]},
		{"match":"die","steps":[{"stderr":%[1]q},{"exit":3}]}],"after":"offline"}`,
		bad, strings.ReplaceAll(bad, `"`, `\"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, filepath.Join(dir, "home"), "0", "--scenario", scenario)
	site := filepath.Join(dir, `<img src=x onerror="document.title='ran'">`)
	if err := os.Mkdir(site, 0o700); err != nil {
		t.Fatal(err)
	}
	s.rpc("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"mallory","approvals":"ask","cwd":%q}}`, site))
	b := open(t, s.url+"/")
	b.enter(s)
	b.click("#rows button")
	b.says("#flow", "live")
	b.says("#facts", site)

	b.write("#message", bad+" talk\r")
	b.says("#talk .said", bad)
	b.says("#talk .answer", bad)
	b.says("#talk .answer", "said")
	for _, kind := range []string{"text_delta", "thinking_delta", "toolcall_input", "toolcall_result"} {
		b.until(fmt.Sprintf(`[...document.querySelectorAll("#events > div")].some((e) => e.children[1].innerText === %q && e.innerText.includes("<img"))`, kind))
	}

	// Of an answer, too, everything is spelled out but tabs and new lines.
	eval[bool](b, `document.querySelector("#message").value = "turn \u202e", true`)
	b.write("#message", "\r")
	b.says("#talk .said", `turn \u{202e}`)
	b.until(`[...document.querySelectorAll("#talk .answer")].some((e) => e.textContent ===
		"\\u{202e}evil\\u{202c} \\u{7} a\\u{200b}b \\u{2066}c\\u{2069} d\\u{d}\tsaid\nso")`)

	b.write("#message", "ask\r")
	b.says("#asked-list", bad)
	b.says("#asked-list", `\u{202e}`) // what would turn the text around is spelled out
	b.press("asked-list", "Deny")
	b.says("#talk .answer", "asked")

	b.write("#message", "fail\r")
	b.says("#talk .outcome.bad", "<img")
	b.write("#message", "die\r")
	b.says("#rows .fault", "exit status 3")
	b.says("#talk li:last-child .outcome.bad", "its last words")
	b.says("#talk li:last-child .outcome.bad", "<img")

	if n := eval[int](b, `document.querySelectorAll("img, script:not([src])").length`); n != 0 {
		t.Errorf("%d elements were made of what an agent said", n)
	}
	if title := eval[string](b, `document.title`); title == "ran" {
		t.Error("what an agent said was run")
	}
	b.clean()
}

// The policy holds by itself: markup that got in would do nothing.
func TestPolicy(t *testing.T) {
	s := serve(t, t.TempDir())
	b := open(t, s.url+"/")
	for _, test := range []struct{ name, script, stops string }{
		{"a string as HTML", `try { document.body.innerHTML = "<p>in</p>"; "taken" } catch (e) { "refused" }`, "require-trusted-types-for"},
		{"a script of the page", `const s = document.createElement("script"); try { s.text = "1"; "taken" } catch (e) { "refused" }`, "require-trusted-types-for"},
		{"an image from elsewhere", `const i = new Image(); i.src = "http://127.0.0.1:1/x.png"; document.body.append(i); "refused"`, "img-src"},
		{"a request to elsewhere", `fetch("http://127.0.0.1:1/").then(() => "taken", () => "refused")`, "connect-src"},
	} {
		if got := eval[string](b, "{"+test.script+"}"); got != "refused" {
			t.Errorf("%s: %s", test.name, got)
		}
		b.until(fmt.Sprintf(`window.stopped.some((s) => s.startsWith(%q))`, test.stops))
	}
}

// The connection breaks and comes back; the server drains, dies, and another one
// with another key takes its place.
func TestServerGone(t *testing.T) {
	home := t.TempDir()
	s := serve(t, home, "0", "--drain-timeout", "20s")
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"alice"}}`)
	r := relayTo(t, s)
	b := open(t, r.url+"/", throughRelay)
	b.enter(s)
	b.click("#rows button")
	b.says("#flow", "live")
	s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"echo before"}}`)
	b.says("#events", "before")

	r.cut()
	b.says("#link", "does not answer")
	b.says("#flow", "broken off")
	s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"echo meanwhile"}}`)
	r.mend()
	b.says("#link", "Connected")
	b.says("#events", "meanwhile") // it goes on where it broke off
	numbers := eval[[]int](b, `[...document.querySelectorAll("#events .seq")].map((e) => Number(e.innerText))`)
	for i := 1; i < len(numbers); i++ {
		if numbers[i] <= numbers[i-1] {
			t.Errorf("events are shown as %v: twice, or out of order", numbers)
		}
	}

	b.write("#message", "count to 600\r")
	b.says("#talk .running .outcome", "Answering")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.says("#link", "The server is ending")
	s.end(syscall.SIGKILL)
	b.says("#link", "does not answer")

	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	again := serve(t, home, at.Port())
	b.says("#key-error", "Invalid API key")
	b.enter(again)
	b.says("#empty", "No agent runs here")
}

// An agent that is destroyed and created again between two looks is followed on.
func TestNextLife(t *testing.T) {
	s := serve(t, t.TempDir())
	create := `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"alice"}}`
	s.rpc("/", create)
	b := open(t, s.url+"/")
	b.enter(s)
	b.click("#rows button")
	b.says("#flow", "live")
	eval[bool](b, `(() => { const real = window.fetch, held = new Promise((r) => { window.release = r; });
		window.fetch = async (...given) => { if (given[0] === "/") { window.waits = true; await held; } return real(...given); }; return true; })()`)
	b.until(`window.waits === true`)
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"destroy_agent","params":{"agent_id":"alice"}}`)
	s.rpc("/", create)
	eval[bool](b, `window.release(), true`)
	s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"echo born again"}}`)
	b.says("#events", "born again")
	b.says("#flow", "live")
	b.clean()
}

// A stream that is cut off in the middle is joined again: the answer is whole,
// and was sent once.
func TestStreamBreaks(t *testing.T) {
	s := serve(t, t.TempDir())
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"alice"}}`)
	r := relayTo(t, s)
	b := open(t, r.url+"/", throughRelay)
	b.enter(s)
	b.click("#rows button")
	b.write("#message", "count to 100\r")
	b.says("#talk .answer", "3")
	r.cut()
	b.says("#talk .outcome", "The connection broke")
	r.mend()
	b.says("#talk .outcome", "completed")
	if answer := eval[string](b, `document.querySelector("#talk .answer").innerText`); !strings.Contains(answer, "100") || strings.Count(answer, "57") != 1 {
		t.Errorf("the answer is not whole: %s", answer)
	}
	if messages := s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"get_messages"}`); strings.Count(messages, `"role":"user"`) != 1 {
		t.Errorf("it was not sent once: %s", messages)
	}
}

// An agent that floods its subscribers does not wedge the page.
func TestFlood(t *testing.T) {
	s := serve(t, t.TempDir())
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"alice"}}`)
	b := open(t, s.url+"/")
	b.enter(s)
	b.click("#rows button")
	b.says("#flow", "live")
	b.write("#message", "flood 200000\r")
	b.says("#talk .outcome", "completed")
	for range 200 {
		s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"echo x"}}`)
	}
	s.rpc("/agent/alice", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"echo the last"}}`)
	b.says("#events", "the last")
	if n := eval[int](b, `document.querySelectorAll("#events > div").length`); n != 300 {
		t.Errorf("%d events are shown, want the last 300", n)
	}
	if n := eval[int](b, `document.querySelector("#talk .answer").innerText.length`); n > 1<<16 {
		t.Errorf("%d characters of an answer are shown", n)
	}
}

// The longest answers end, too, on the page: at the first asking, with what was left
// out told.
func TestLongAnswer(t *testing.T) {
	dir := t.TempDir()
	scenario := filepath.Join(dir, "scenario.json")
	if err := os.WriteFile(scenario, []byte(`{"turns":[{"match":"at length","steps":[{"flood":{"count":800,"bytes":10000}}]}],"after":"offline"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, filepath.Join(dir, "home"), "0", "--scenario", scenario)
	s.rpc("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"alice"}}`)
	b := open(t, s.url+"/")
	b.enter(s)
	b.click("#rows button")
	eval[bool](b, `(() => { window.streams = 0; const real = window.fetch;
		window.fetch = (...given) => { if (given[1]?.headers?.Accept) window.streams++; return real(...given); }; return true; })()`)
	b.write("#message", "at length\r")
	b.says("#talk .outcome", "only the beginning is shown")
	if n := eval[int](b, `window.streams`); n != 1 {
		t.Errorf("it was asked for %d times", n)
	}
	if n := eval[int](b, `document.querySelector("#talk .answer").innerText.length`); n != 1<<16 {
		t.Errorf("%d characters of it are shown", n)
	}
}

// scheme sets what prefers-color-scheme says.
func (b *tab) scheme(name string) {
	b.t.Helper()
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}
