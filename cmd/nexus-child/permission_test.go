package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
)

// result is what the tool of a turn gave.
func (p *process) result(id, message string) string {
	p.t.Helper()
	p.send(`{"type":"prompt","id":"` + id + `","message":"` + message + `"}`)
	text := p.want("event.type", "toolcall_result").Get("event.result").String()
	p.want("command", "prompt")
	return text
}

// A parent that says so is asked, and its answer decides.
func TestApprovals(t *testing.T) {
	home, sessions, outside := t.TempDir(), t.TempDir(), t.TempDir()
	p := startChild(t, home, "--approvals", "ask", "--session", "a", "--session-dir", sessions)
	ask := func(id, message, answer string) (request, end gjson.Result, result string) {
		t.Helper()
		p.send(`{"type":"prompt","id":"` + id + `","message":"` + message + `"}`)
		request = p.want("type", "permission_request")
		p.send(`{"type":"permission_response","id":"r` + id + `","request_id":"` + request.Get("request_id").String() + `",` + answer + `}`)
		end = p.want("type", "permission_end")
		result = p.want("event.type", "toolcall_result").Get("event.result").String()
		p.want("command", "prompt")
		return request, end, result
	}
	request, end, result := ask("1", "run touch made && ls made", `"decision":"allow_session"`)
	if request.Get("command").String() != "touch made && ls made" || request.Get("turn_id").String() != "1" || request.Get("tool_name").String() != "shell" {
		t.Errorf("asked %s", request)
	}
	if got, want := request.Get("for_session").Str, "shell, job_start: commands of nothing but ls, touch, in "+p.cmd.Dir+" and below, that name nothing elsewhere"; got != want {
		t.Errorf("for the session: %q, want %q", got, want)
	}
	if end.Get("outcome").String() != "allowed" || result != "made\n[exit status 0]" {
		t.Errorf("ended %s with %q", end, result)
	}
	target := filepath.Join(outside, "a.txt")
	if _, _, result = ask("2", "write "+target+": hello", `"decision":"deny","reason":"keep out"`); result != "write_file: it was not allowed: keep out" {
		t.Errorf("got %q", result)
	}
	if _, _, result = ask("3", "write "+target+": hello", `"decision":"allow_once"`); !strings.HasPrefix(result, "wrote 5 bytes") {
		t.Errorf("got %q", result)
	}
	if got := p.result("4", "run touch again"); got != "[exit status 0]" {
		t.Errorf("what was allowed for the session: %q", got)
	}
	p.send(`{"type":"prompt","id":"5","message":"write ` + target + `: again"}`)
	p.want("type", "permission_request")
	p.send(`{"type":"abort","id":"a5"}`)
	if end := p.want("type", "permission_end"); end.Get("outcome").String() != "cancelled" {
		t.Errorf("ended %s", end)
	}
	p.want("id", "a5")
	p.stdin.Close()
	p.wait()

	// What was allowed comes back with the session, and ends with it.
	p = command(t, home, nil, "--approvals", "ask", "--continue", "a", "--session-dir", sessions)
	p.cmd.Dir = t.TempDir()
	p.start()
	if got := p.result("6", "run touch later"); got != "[exit status 0]" {
		t.Errorf("after a restart: %q", got)
	}
	p.send(`{"type":"get_state","id":"s"}`)
	if got := p.want("id", "s").Get("permissions.session_allowances.exec_dirs.shell.#").Int(); got != 1 {
		t.Errorf("%d directories are allowed", got)
	}
	p.send(`{"type":"new_session","id":"n"}`)
	p.want("id", "n")
	if _, _, result = ask("7", "run touch last", `"decision":"deny"`); !strings.Contains(result, "it was not allowed") {
		t.Errorf("in a new session: %q", result)
	}
	p.stdin.Close()
	p.wait()
}

func TestApprovalDeadline(t *testing.T) {
	p := startChild(t, t.TempDir(), "--approvals", "ask", "--approval-timeout", "50ms")
	if got := p.result("1", "run touch a"); got != "shell: it was not allowed: nobody answered within 50ms" {
		t.Errorf("got %q", got)
	}
	p.stdin.Close()
	p.wait()
}

// A ceiling stays with the session, and what is saved is what held: it does not
// grow with the configuration.
func TestCeilingIsKept(t *testing.T) {
	home, sessions, dir := t.TempDir(), t.TempDir(), t.TempDir()
	config := func(level string) {
		t.Helper()
		content := `{"presets":{"careful":{"preset":"` + level + `","disabled_tools":["shell"],"blocked_paths":["~/secret"]}}}`
		if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := func(args ...string) *process {
		t.Helper()
		p := command(t, home, []string{"HOME=/home/me"}, append(args, "--session-dir", sessions)...)
		p.start()
		return p
	}
	state := func(p *process) gjson.Result {
		t.Helper()
		p.send(`{"type":"get_state","id":"s"}`)
		return p.want("id", "s").Get("permissions")
	}
	end := func(p *process) { p.stdin.Close(); p.wait() }

	config("sandboxed")
	p := start("--session", "a", "--cwd", dir, "--preset", "careful", "--ceiling", `{"preset":"trusted","disabled_tools":["glob"]}`)
	if s := state(p); s.Get("permission_level").String() != "sandboxed" || s.Get("disabled_tools").Raw != `["glob","shell"]` || s.Get("policy.blocked_paths").Raw != `["/home/me/secret"]` {
		t.Errorf("at first: %s", s)
	}
	end(p)
	config("yolo")
	p = start("--continue", "a")
	if s := state(p); s.Get("permission_level").String() != "sandboxed" || s.Get("disabled_tools").Raw != `["glob","shell"]` {
		t.Errorf("restored: %s", s)
	}
	p.send(`{"type":"set_permissions","id":"p","preset":"careful"}`)
	if got := p.want("id", "p").Get("error").String(); got != "set_permissions: this agent's ceiling does not allow the preset yolo (at most trusted)" {
		t.Errorf("got %q", got)
	}
	p.send(`{"type":"set_permissions","id":"q","preset":"trusted"}`)
	if got := p.want("id", "q"); !got.Get("ok").Bool() || got.Get("permissions.disabled_tools").Raw != `["glob"]` {
		t.Errorf("got %s", got)
	}
	end(p)
	p = start("--continue", "a", "--ceiling", `{"preset":"sandboxed"}`)
	end(p)
	p = start("--continue", "a", "--preset", "yolo", "--ceiling", `{"preset":"yolo"}`)
	if s := state(p); s.Get("permission_level").String() != "sandboxed" || s.Get("disabled_tools").Raw != `["glob"]` {
		t.Errorf("a ceiling grew: %s", s)
	}
	end(p)
}

// What the command line and a project's file must not say.
func TestPermissionFaults(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(project, ".nexus3"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, project string
		args          []string
		want          string
	}{
		{"no JSON", "", []string{"--permissions", "x"}, "--permissions: "},
		{"an unknown member", "", []string{"--ceiling", `{"preset":"yolo","path":1}`}, `--ceiling: member "path" is not known`},
		{"a relative path", "", []string{"--permissions", `{"preset":"yolo","write_paths":["a"]}`}, `member "write_paths[0]" is "a", want an absolute path`},
		{"an unknown preset", "", []string{"--preset", "mine"}, `unknown preset "mine", want one of yolo, trusted, sandboxed`},
		{"a tool that is none", "", []string{"--permissions", `{"preset":"trusted","disabled_tools":["Shell"]}`}, `--permissions: member "disabled_tools[0]" is "Shell", which is no tool; did you mean "shell"?`},
		{"a rule for one", "", []string{"--ceiling", `{"preset":"trusted","tools":{"bash":{"mode":"deny"}}}`}, `--ceiling: member "tools.bash" is "bash", which is no tool`},
		{"both", "", []string{"--preset", "yolo", "--permissions", `{"preset":"yolo"}`}, "--preset and --permissions exclude each other"},
		{"beyond the ceiling", "", []string{"--ceiling", `{"preset":"trusted","allowed_paths":["/usr"]}`}, "is outside of what this agent's ceiling allows: /usr"},
		{"a preset of the project", `{"presets":{"p":{"preset":"sandboxed"}}}`, nil, `member "presets.p" stands in a project's file`},
		{"a project's choice of one", `{"profiles":{"p":{"preset":"yolo"}}}`, nil, `member "profiles.p.preset" stands in a project's file`},
	} {
		if err := os.WriteFile(filepath.Join(project, ".nexus3", "config.json"), []byte(cmp.Or(tt.project, "{}")), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := refused(t, command(t, home, nil, append(tt.args, "--cwd", project)...)); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

// The names that permissions may have are those of the tools that there are.
func TestToolsHaveKnownNames(t *testing.T) {
	p := startChild(t, t.TempDir(), "--host-calls")
	p.send(`{"type":"tools_list"}`)
	var tools []string
	for _, name := range p.want("command", "tools_list").Get("tools.#.name").Array() {
		tools = append(tools, name.String())
	}
	slices.Sort(tools)
	if !slices.Equal(tools, protocol.BuiltinTools) {
		t.Errorf("the child has the tools %q, protocol.BuiltinTools %q", tools, protocol.BuiltinTools)
	}
	p.send(`{"type":"set_permissions","id":"1","permissions":{"preset":"trusted","disabled_tools":["Shell"]}}`)
	if got := p.want("id", "1").Get("error").String(); got != `set_permissions: member "disabled_tools[0]" is "Shell", which is no tool; did you mean "shell"?` {
		t.Errorf("got %s", got)
	}
	p.stdin.Close()
	p.wait()
}

// A session that was saved when other tools were there, or by another program, comes
// back with what it has, and can be changed.
func TestSavedNamesOfTools(t *testing.T) {
	home := t.TempDir()
	p := startChild(t, home, "--session", "a")
	p.stdin.Close()
	p.wait()
	path := filepath.Join(home, "sessions", "a.jsonl")
	saved, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := `{"type":"settings","permissions":{"preset":"trusted","disabled_tools":["bash"]},"at":"2026-01-02T03:04:05Z"}` + "\n"
	if err := os.WriteFile(path, append(saved, old...), 0o600); err != nil {
		t.Fatal(err)
	}
	p = startChild(t, home, "--continue", "a")
	p.send(`{"type":"set_permissions","id":"1","permissions":{"preset":"trusted","disabled_tools":["bash","shell"]}}`)
	if got := p.want("id", "1").Get("permissions.disabled_tools").Raw; got != `["bash","shell"]` {
		t.Errorf("got %s", got)
	}
	p.stdin.Close()
	p.wait()
}

// The directory that a session saved is not followed where it became a link.
func TestSavedDirectoryThatIsALinkNow(t *testing.T) {
	home, sessions, top := t.TempDir(), t.TempDir(), t.TempDir()
	dir := filepath.Join(top, "work")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := startChild(t, home, "--session-dir", sessions, "--session", "a", "--cwd", dir)
	p.stdin.Close()
	p.wait()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{"--session-dir", sessions, "--continue", "a", "--cwd", top}
	if got := refused(t, command(t, home, nil, elsewhere...)); !strings.Contains(got, "is outside of where this session worked") {
		t.Errorf("when it is gone, above it: %s", got)
	}
	if err := os.Symlink("/etc", dir); err != nil {
		t.Fatal(err)
	}
	elsewhere[len(elsewhere)-1] = "/etc"
	if got := refused(t, command(t, home, nil, elsewhere...)); !strings.Contains(got, "is outside of where this session worked") {
		t.Errorf("where the link leads: %s", got)
	}
	got := refused(t, command(t, home, nil, "--session-dir", sessions, "--continue", "a"))
	if !strings.Contains(got, "leads through a symbolic link now; choose another") {
		t.Errorf("got %s", got)
	}
}
