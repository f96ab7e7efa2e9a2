package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// editor is an editor that has started nexus acp, and speaks the Agent Client Protocol with it.
type editor struct {
	*testing.T
	s      *live
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // what nexus acp writes
	stderr bytes.Buffer
	last   int
}

// newEditor starts nexus acp for the server s.
func newEditor(t *testing.T, s *live, flags ...string) *editor {
	t.Helper()
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	e := &editor{T: t, s: s, lines: make(chan string, 100_000)}
	e.cmd = exec.Command(filepath.Join(programs, "nexus"), append([]string{"acp", "--home", s.home, "--port", at.Port()}, flags...)...)
	e.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "GORACE=atexit_sleep_ms=0"}
	e.cmd.Dir, e.cmd.Stderr = s.cwd, &e.stderr
	stdout, err := e.cmd.StdoutPipe()
	if err == nil {
		e.stdin, err = e.cmd.StdinPipe()
	}
	if err == nil {
		err = e.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { // ends with stdout
		defer close(read)
		defer close(e.lines)
		in := bufio.NewReader(stdout)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			e.lines <- line
		}
	}()
	t.Cleanup(func() {
		if e.cmd.ProcessState == nil {
			_ = e.stdin.Close()
			<-read
			_ = e.cmd.Wait()
		}
		endLeftOver(s.home)
	})
	e.call("initialize", `{"protocolVersion":1,"clientCapabilities":{"session":{"notices":{},"compaction":null}}}`)
	return e
}

// write writes lines to nexus acp.
func (e *editor) write(lines ...string) {
	e.Helper()
	if _, err := io.WriteString(e.stdin, strings.Join(lines, "\n")+"\n"); err != nil {
		e.Fatal(err)
	}
}

// request is a line that calls a method, and its id.
func (e *editor) request(method, params string) (line string, id int) {
	e.last++
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, e.last, method, params), e.last
}

// next is the next message of nexus acp.
func (e *editor) next() gjson.Result {
	e.Helper()
	select {
	case line, more := <-e.lines:
		if !more {
			e.Fatalf("nexus acp has ended: %s", &e.stderr)
		}
		return gjson.Parse(line)
	case <-time.After(patience):
		e.Fatal("nexus acp says nothing")
	}
	panic("not reached")
}

// answer waits for the answer to a request, and returns what was said before it.
func (e *editor) answer(id int) (answer gjson.Result, before []gjson.Result) {
	e.Helper()
	for {
		message := e.next()
		if message.Get("id").Int() == int64(id) && !message.Get("method").Exists() {
			return message, before
		}
		before = append(before, message)
	}
}

// call calls a method that succeeds.
func (e *editor) call(method, params string) (result gjson.Result, before []gjson.Result) {
	e.Helper()
	line, id := e.request(method, params)
	e.write(line)
	answer, before := e.answer(id)
	if !answer.Get("result").Exists() {
		e.Fatalf("%s: %s", method, answer.Raw)
	}
	return answer.Get("result"), before
}

// create opens a session of a new agent.
func (e *editor) create() string {
	e.Helper()
	made, _ := e.call("session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, e.s.cwd))
	return made.Get("sessionId").Str
}

// promptParams are those of a prompt that is a text.
func promptParams(session, text string) string {
	return fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}`, session, text)
}

// prompt sends one, and returns why it ended and what was said before that.
func (e *editor) prompt(session, text string) (stop string, before []gjson.Result) {
	e.Helper()
	result, before := e.call("session/prompt", promptParams(session, text))
	return result.Get("stopReason").Str, before
}

// until waits for an update of that kind.
func (e *editor) until(kind string) gjson.Result {
	e.Helper()
	for {
		if message := e.next(); message.Get("params.update.sessionUpdate").Str == kind {
			return message
		}
	}
}

// text is what the chunks of that kind say.
func text(messages []gjson.Result, session, kind string) string {
	var b strings.Builder
	for _, m := range messages {
		if m.Get("params.sessionId").Str == session && m.Get("params.update.sessionUpdate").Str == kind {
			b.WriteString(m.Get("params.update.content.text").Str)
		}
	}
	return b.String()
}

// leave ends stdin, and expects a quiet end.
func (e *editor) leave() {
	e.Helper()
	if err := e.stdin.Close(); err != nil {
		e.Fatal(err)
	}
	for range e.lines { // until stdout has ended
	}
	if err := e.cmd.Wait(); err != nil || e.stderr.Len() > 0 {
		e.Errorf("nexus acp ended with %v, and said %q", err, &e.stderr)
	}
}

// A session is there after a restart of nexus acp, and of the server.
func TestSessionOfEditorOutlivesAll(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	e := newEditor(t, s)
	session := e.create()
	if !strings.HasPrefix(session, "acp-") {
		t.Errorf("session %s", session)
	}
	stop, before := e.prompt(session, "My name is Alice.")
	if got := text(before, session, "agent_message_chunk"); stop != "end_turn" || !strings.Contains(got, "Alice") {
		t.Errorf("stopped by %s, said %q", stop, got)
	}
	e.prompt(session, "think about it")
	e.leave()
	s.end()
	s.again()

	e = newEditor(t, s)
	listed, _ := e.call("session/list", `{}`)
	if got := listed.Get("sessions.#.sessionId").Raw; got != fmt.Sprintf(`[%q]`, session) {
		t.Errorf("listed %s", got)
	}
	loaded, before := e.call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":%q,"mcpServers":[]}`, session, s.cwd))
	if got := text(before, session, "user_message_chunk"); got != "My name is Alice.think about it" {
		t.Errorf("said by the user: %q", got)
	}
	if got := text(before, session, "agent_thought_chunk"); !strings.Contains(got, "think about it") && !strings.Contains(got, `"about it"`) {
		t.Errorf("thought: %q", got)
	}
	if got := loaded.Get("modes.currentModeId").Str; got != "trusted" {
		t.Errorf("mode %s", got)
	}
	if _, before = e.prompt(session, "What is my name?"); !strings.Contains(text(before, session, "agent_message_chunk"), "Your name is Alice") {
		t.Errorf("said %s", before)
	}

	// An agent that was destroyed meanwhile comes back with its conversation.
	s.call("/", "destroy_agent", fmt.Sprintf(`{"agent_id":%q}`, session))
	if _, before = e.prompt(session, "What is my name?"); !strings.Contains(text(before, session, "agent_message_chunk"), "Your name is Alice") {
		t.Errorf("said %s", before)
	}
	e.leave()
}

// A call asks the editor, or whoever answers first.
func TestEditorIsAskedForApproval(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	e := newEditor(t, s)
	session := e.create()
	ask := func(file string) (question gjson.Result, prompt int) {
		line, id := e.request("session/prompt", promptParams(session, "run touch "+file))
		e.write(line)
		for {
			if m := e.next(); m.Get("method").Str == "session/request_permission" {
				return m, id
			}
		}
	}
	for file, want := range map[string]string{"yes": "allow_once", "no": "deny"} {
		question, id := ask(file)
		if got := question.Get("params.options.#.kind").Raw; got != `["allow_once","allow_always","reject_once"]` {
			t.Errorf("offered %s", got)
		}
		e.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":%q}}}`, question.Get("id").Raw, want))
		answer, _ := e.answer(id)
		_, err := os.Stat(filepath.Join(s.cwd, file))
		if there := err == nil; there != (file == "yes") || answer.Get("result.stopReason").Str != "end_turn" {
			t.Errorf("%s: %s is there: %v; %s", want, file, there, answer.Raw)
		}
	}

	question, id := ask("elsewhere")
	pending := gjson.Get(s.call("/agent/"+session, "get_permissions", `{}`), "result.pending.0.request_id").Str
	s.call("/agent/"+session, "respond_permission", fmt.Sprintf(`{"request_id":%q,"decision":"allow_once"}`, pending))
	_, before := e.answer(id)
	if !slices.ContainsFunc(before, func(m gjson.Result) bool {
		return m.Get("method").Str == "$/cancel_request" && m.Get("params.requestId").Raw == question.Get("id").Raw
	}) {
		t.Errorf("a question that was answered elsewhere was not withdrawn: %s", before)
	}
	// An answer that comes too late, or to nothing that was asked, costs nothing.
	e.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, question.Get("id").Raw), `{"jsonrpc":"2.0","id":"x","result":1}`)

	// A prompt that is cancelled while the editor is asked.
	question, id = ask("never")
	e.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, session),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, question.Get("id").Raw))
	if answer, _ := e.answer(id); answer.Get("result.stopReason").Str != "cancelled" {
		t.Errorf("the cancelled prompt: %s", answer.Raw)
	}
	e.leave()
}

// A cancel ends a long answer, also if it comes in one piece with its prompt; pieces come in their order.
func TestEditorCancels(t *testing.T) {
	t.Parallel()
	e := newEditor(t, newLive(t, nil))
	session := e.create()
	stop, before := e.prompt(session, "count to 30")
	var want strings.Builder
	for i := range 30 {
		fmt.Fprintf(&want, "%d ", i+1)
	}
	if got := text(before, session, "agent_message_chunk"); stop != "end_turn" || got != strings.TrimSpace(want.String()) {
		t.Errorf("stopped by %s, counted %q", stop, got)
	}
	cancel := fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, session)
	line, id := e.request("session/prompt", promptParams(session, "count to 100000"))
	e.write(line)
	e.until("agent_message_chunk")
	e.write(cancel)
	if answer, _ := e.answer(id); answer.Get("result.stopReason").Str != "cancelled" {
		t.Errorf("the cancelled prompt: %s", answer.Raw)
	}
	for range 5 {
		line, id = e.request("session/prompt", promptParams(session, "count to 100000"))
		e.write(line, cancel)
		if answer, _ := e.answer(id); answer.Get("result.stopReason").Str != "cancelled" {
			t.Errorf("the prompt that was cancelled at once: %s", answer.Raw)
		}
	}
	// The protocol's own way to cancel a request.
	line, id = e.request("session/prompt", promptParams(session, "count to 100000"))
	e.write(line)
	e.until("agent_message_chunk")
	e.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%d}}`, id))
	if answer, _ := e.answer(id); answer.Get("error.code").Int() != -32800 {
		t.Errorf("the cancelled request: %s", answer.Raw)
	}
	if _, before = e.prompt(session, "echo on"); text(before, session, "agent_message_chunk") != "on" {
		t.Errorf("after that: %s", before)
	}
	e.leave()
}

// Two sessions answer at once, each its own.
func TestSessionsOfEditorAtOnce(t *testing.T) {
	t.Parallel()
	e := newEditor(t, newLive(t, nil))
	one, two := e.create(), e.create()
	first, firstID := e.request("session/prompt", promptParams(one, "count to 100000"))
	second, secondID := e.request("session/prompt", promptParams(two, "echo two"))
	e.write(first)
	e.until("agent_message_chunk")
	e.write(second)
	answer, before := e.answer(secondID)
	if got := text(before, two, "agent_message_chunk"); got != "two" || answer.Get("result.stopReason").Str != "end_turn" {
		t.Errorf("beside a long turn: %q, %s", got, answer.Raw)
	}
	e.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, one))
	if answer, _ := e.answer(firstID); answer.Get("result.stopReason").Str != "cancelled" {
		t.Errorf("the long one: %s", answer.Raw)
	}
	e.leave()
}

// The death of an agent's process, or of the server, fails the prompt in words; what was said by then was
// told, and the next prompt goes on.
func TestEditorAfterKill(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	e := newEditor(t, s)
	session := e.create()
	e.prompt(session, "My name is Alice.")
	killed(e, session, "agent", func() {
		if err := syscall.Kill(s.pid(session), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	killed(e, session, "server", func() {
		if err := s.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = s.cmd.Wait() // as killed
	})
}

// killed kills something in mid-turn.
func killed(e *editor, session, what string, kill func()) {
	e.Helper()
	line, id := e.request("session/prompt", promptParams(session, "count to 100000"))
	e.write(line)
	e.until("agent_message_chunk")
	kill()
	answer, _ := e.answer(id)
	if code := answer.Get("error.code").Int(); code != -32603 || answer.Get("error.message").Str == "" {
		e.Errorf("the prompt of a killed %s: %s", what, answer.Raw)
	}
	if _, before := e.prompt(session, "What is my name?"); !strings.Contains(text(before, session, "agent_message_chunk"), "Your name is Alice") {
		e.Errorf("after the kill of the %s: %s", what, before)
	}
}

// What is no message of the protocol is answered in words, and costs nothing else.
func TestRubbishOfEditor(t *testing.T) {
	t.Parallel()
	e := newEditor(t, newLive(t, nil))
	session := e.create()
	big := strings.Repeat("A", 2<<20)
	for _, tt := range []struct{ line, id, want string }{
		{`rubbish`, `null`, "Parse error"},
		{`{}`, `null`, "Invalid Request"},
		{`[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`, `null`, "no batches"},
		{`{"jsonrpc":"2.0","id":"a","method":"session/steal","params":{}}`, `"a"`, "no method"},
		{`{"jsonrpc":"2.0","id":"b","method":"session/prompt","params":[]}`, `"b"`, "params must be an object"},
		{`{"jsonrpc":"2.0","id":"c","method":"session/prompt","params":{}}`, `"c"`, `member "sessionId" is missing`},
		{`{"jsonrpc":"2.0","id":"d","method":"session/new","params":{"cwd":"here","mcpServers":[]}}`, `"d"`, "absolute path"},
		{`{"jsonrpc":"2.0","id":"e","method":"session/prompt","params":` + promptParams("nobody", "hi") + `}`, `"e"`, "is not open"},
		{`{"jsonrpc":"2.0","id":"f","method":"session/load","params":{"sessionId":"../x","cwd":"/tmp","mcpServers":[]}}`, `"f"`, "no session"},
		{`{"jsonrpc":"2.0","id":"g","method":"session/prompt","params":{"sessionId":"` + session + `","prompt":[]}}`, `"g"`, "empty"},
		{`{"jsonrpc":"2.0","id":"h","method":"session/prompt","params":{"sessionId":"` + session + `","prompt":[{"type":"image","mimeType":"image/png","data":"` + big + `"}]}}`, `"h"`, "at most"},
		{`{"jsonrpc":"2.0","id":"i","method":"session/prompt","params":{"x":"` + strings.Repeat(big, 9) + `"}}`, `null`, "a line has more than 16777216 bytes"},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"j\",\"method\":\"session/list\",\"params\":{\"cwd\":\"\xff\"}}", `null`, "UTF-8"},
	} {
		e.write(`{"jsonrpc":"2.0","method":"_of/nobody"}`, "", tt.line)
		answer := e.next()
		problem := answer.Get("error.message").Str + ": " + answer.Get("error.data.details").Str
		if answer.Get("id").Raw != tt.id || !strings.Contains(problem, tt.want) {
			t.Errorf("%.80s: %s, want %s", tt.line, answer.Raw, tt.want)
		}
	}
	if _, before := e.prompt(session, "echo on"); text(before, session, "agent_message_chunk") != "on" {
		t.Errorf("after that: %s", before)
	}
	e.leave()
}

// The end of stdin ends nexus acp and the turn, and not the agent.
func TestEditorLeaves(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	e := newEditor(t, s)
	session := e.create()
	line, _ := e.request("session/prompt", promptParams(session, "count to 100000"))
	e.write(line)
	e.until("agent_message_chunk")
	e.leave()
	state := eventually(t, "the end of the turn", func() (string, error) {
		if s.busy(session) == nil {
			return "", fmt.Errorf("it runs")
		}
		return gjson.Get(s.call("/", "list_agents", `{}`), "result.agents.0.state").Str, nil
	})
	if state != "ready" {
		t.Errorf("the agent is %s", state)
	}
	if got := gjson.Get(s.send(session, "echo on"), "result.content").Str; got != "on" {
		t.Errorf("the agent says %q", got)
	}
}

// The flags: an agent that there is, its directory, and MCP servers that are not taken.
func TestFlagsOfEditor(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"mine","cwd":%q}`, s.cwd))
	s.send("mine", "My name is Alice.")
	e := newEditor(t, s, "--agent", "mine", "--cwd", "/nowhere")
	made, _ := e.call("session/new", `{"cwd":"/","mcpServers":[{"name":"files","command":"x","args":[],"env":[]}]}`)
	if got := made.Get("sessionId").Str; got != "mine" {
		t.Errorf("session %s", got)
	}
	_, before := e.prompt("mine", "What is my name?")
	if !strings.Contains(text(before, "mine", "agent_message_chunk"), "Your name is Alice") {
		t.Errorf("said %s", before)
	}
	if first := before[0].Get("params.update"); first.Get("sessionUpdate").Str != "notice" || !strings.Contains(first.Get("description").Str, "(files)") {
		t.Errorf("told first: %s", first.Raw)
	}
	_ = e.stdin.Close()
	for range e.lines { // until stdout has ended
	}
	if err := e.cmd.Wait(); err != nil || !strings.Contains(e.stderr.String(), "does not get the MCP servers of the editor (files)") {
		t.Errorf("ended with %v, said %q", err, &e.stderr)
	}

	dir := t.TempDir()
	e = newEditor(t, s, "--cwd", dir, "--preset", "sandboxed", "--model", "offline/offline")
	made, _ = e.call("session/new", `{"cwd":"/","mcpServers":[]}`)
	if got := made.Get("modes.currentModeId").Str; got != "sandboxed" {
		t.Errorf("mode %s", got)
	}
	if got := gjson.Get(s.call("/agent/"+made.Get("sessionId").Str, "get_context", `{}`), "result.cwd").Str; got != dir {
		t.Errorf("it works in %s, want %s", got, dir)
	}
	e.leave()
}

// Presets of the configuration are modes; yolo is one only of an agent that was created as such, by leave of the owner.
func TestModesOfEditor(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.end()
	config := `{"server":{"allow_yolo":true},"presets":{"careful":{"preset":"trusted","disabled_tools":["shell"]},"wild":{"preset":"yolo"}}}`
	if err := os.WriteFile(filepath.Join(s.home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.again()
	e := newEditor(t, s, "--preset", "yolo")
	made, _ := e.call("session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, s.cwd))
	session := made.Get("sessionId").Str
	if got := made.Get("modes.currentModeId").Str + made.Get("modes.availableModes.#.id").Raw; got != `yolo["trusted","sandboxed","careful","yolo"]` {
		t.Errorf("modes %s", got)
	}
	_, before := e.call("session/set_mode", fmt.Sprintf(`{"sessionId":%q,"modeId":"careful"}`, session))
	if len(before) != 2 || before[0].Get("params.update.currentModeId").Str != "careful" || before[1].Get("params.update.configOptions.0.currentValue").Str != "careful" {
		t.Errorf("told %s", before)
	}
	line, id := e.request("session/set_mode", fmt.Sprintf(`{"sessionId":%q,"modeId":"yolo"}`, session))
	e.write(line)
	if answer, _ := e.answer(id); !strings.Contains(answer.Get("error.message").Str, "yolo") {
		t.Errorf("yolo again: %s", answer.Raw)
	}
	// What somebody else sets is told with the next turn.
	s.call("/agent/"+session, "set_permissions", `{"preset":"sandboxed"}`)
	if _, before = e.prompt(session, "echo on"); !slices.ContainsFunc(before, func(m gjson.Result) bool { return m.Get("params.update.currentModeId").Str == "sandboxed" }) {
		t.Errorf("told %s", before)
	}
	e.leave()
}

// An agent of another make is used as any other, with fewer settings.
func TestAgentOfAnotherMakeForEditor(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	made := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"other","kind":"pipe","command":["cat"],"cwd":%q}`, s.cwd))
	if !gjson.Get(made, "result").Exists() {
		t.Fatal(made)
	}
	e := newEditor(t, s, "--agent", "other")
	opened, _ := e.call("session/new", fmt.Sprintf(`{"cwd":%q,"mcpServers":[]}`, s.cwd))
	if got := opened.Get("configOptions.#.id").Raw; got != `["mode","model"]` {
		t.Errorf("settings %s", got)
	}
	stop, before := e.prompt("other", "Say that again.")
	if got := text(before, "other", "agent_message_chunk"); stop != "end_turn" || !strings.Contains(got, "Say that again.") {
		t.Errorf("stopped by %s, said %q", stop, got)
	}
	_, before = e.call("session/load", fmt.Sprintf(`{"sessionId":"other","cwd":%q,"mcpServers":[]}`, s.cwd))
	if got := text(before, "other", "user_message_chunk"); got != "Say that again." {
		t.Errorf("said by the user: %q", got)
	}
	e.leave()
}

// What a program puts out is told while it runs.
func TestOutputForEditor(t *testing.T) {
	t.Parallel()
	e := newEditor(t, newLive(t, nil), "--preset", "sandboxed")
	session := e.create()
	release := filepath.Join(e.s.cwd, "release")
	line, id := e.request("session/prompt", promptParams(session, "run echo begun; until [ -e release ]; do sleep 0.01; done"))
	e.write(line)
	for !strings.HasPrefix(e.until("tool_call_update").Get("params.update.content.0.content.text").Str, "begun") {
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if answer, _ := e.answer(id); answer.Get("result.stopReason").Str != "end_turn" {
		t.Errorf("ended by %s", answer.Raw)
	}
	e.leave()
}

// The protocol's own library for editors, which checks each message against the schema. .ci/run fetches it.
func TestLibraryOfEditors(t *testing.T) {
	library := os.Getenv("NEXUS_ACP_SDK")
	if library == "" {
		t.Log("not run, as NEXUS_ACP_SDK names no directory of @agentclientprotocol/sdk")
		return
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("not run, as there is no node here")
		return
	}
	s := newLive(t, nil)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "../../fixtures/acp/editor.mjs", library, s.cwd, filepath.Join(programs, "nexus"), "acp", "--home", s.home, "--port", at.Port())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "GORACE=atexit_sleep_ms=0"}
	out, err := cmd.CombinedOutput()
	if want := "ok messages and thoughts\nok calls with diffs\nok permissions\nok resources\nok cancel\nok modes and settings\nok load\nok several sessions\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}

// What a project's MCP server would run is in the question to the editor, however long its variables are.
func TestEditorIsShownTheProgramOfAServer(t *testing.T) {
	t.Parallel()
	s := newLive(t, func(cmd *exec.Cmd) {
		scenario := filepath.Join(t.TempDir(), "scenario.json")
		if err := os.WriteFile(scenario, []byte(`{"turns":[{"match":"docs","steps":[{"tool":{"name":"mcp_docs_connect","input":{}}},{"text":"done"}]}],"after":"offline"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd.Args = append(cmd.Args, "--scenario", scenario)
	})
	if err := os.Mkdir(filepath.Join(s.cwd, ".nexus3"), 0o700); err != nil {
		t.Fatal(err)
	}
	settings := strings.Repeat("harmless", 48)
	servers := fmt.Sprintf(`{"mcpServers":{"docs":{"command":"bash","args":["-c","touch started; exec cat"],"env":{"APP_SETTINGS":%q},"cwd":"tools"}}}`, settings)
	if err := os.WriteFile(filepath.Join(s.cwd, ".nexus3", "mcp.json"), []byte(servers), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newEditor(t, s)
	line, id := e.request("session/prompt", promptParams(e.create(), "read the docs"))
	e.write(line)
	question := e.next()
	for question.Get("method").Str != "session/request_permission" {
		question = e.next()
	}
	asked := question.Get("params.toolCall")
	if title := asked.Get("title").Str; !strings.HasPrefix(title, "run: bash -c 'touch started; exec cat', ") {
		t.Errorf("the title is %q", title)
	}
	want := "\n  | cd tools && APP_SETTINGS=" + settings + " bash -c 'touch started; exec cat'\n"
	if shown := asked.Get("content.0.content.text").Str; !strings.Contains(shown, want) {
		t.Errorf("shown is %s", asked.Raw)
	}
	e.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"deny"}}}`, question.Get("id").Raw))
	e.answer(id)
	if _, err := os.Stat(filepath.Join(s.cwd, "tools", "started")); err == nil {
		t.Error("it was started all the same")
	}
	e.leave()
}
