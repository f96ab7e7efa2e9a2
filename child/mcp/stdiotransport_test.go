package mcp_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/child/mcp"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// TestProgram goes through all that a server's program can give.
func TestProgram(t *testing.T) {
	t.Setenv("CANARY_TOKEN", "canary-7d1f")
	t.Setenv("NEXUS3_API_KEY", "canary-7d1f")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server := self(t, "my server", "good")
	server.Env["GIVEN"] = "this"
	m := manage(t, mcp.Options{
		Servers: []mcp.Server{server}, Start: sandboxed(), Environment: environment{cwd: &dir}, Images: images{}, Wait: 20 * time.Second,
	})
	if tools := m.Tools(); len(tools) != 0 || status(m).State != protocol.MCPIdle {
		t.Fatalf("before the first turn there are %d tools, state %s", len(tools), status(m).State)
	}
	m.Prepare(t.Context())
	var names []string
	for _, tl := range m.Tools() {
		names = append(names, strings.TrimPrefix(tl.Spec().Name, "mcp_my-server_"))
	}
	want := []string{
		"big", "crash", "echo", "environment", "fail", "grow", "hang", "mixed", "pid", "roots", "structured",
		"list_resources", "read_resource", "get_prompt",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("tools (-want +got):\n%s", diff)
	}
	if got := status(m); got.State != protocol.MCPReady || got.Tools != 11 || got.Transport != "stdio" {
		t.Errorf("status %+v", got)
	}

	echo := find(t, m, "mcp_my-server_echo")
	if got := echo.Spec(); got.Description != "does echo (of the MCP server my server)" || !strings.Contains(string(got.InputSchema), `"text"`) {
		t.Errorf("echo is %+v", got)
	}
	scope, err := echo.(tool.Scoped).Scope(nil)
	if err != nil || scope.Action != protocol.ActionExternal || scope.Summary != `call "echo" of the MCP server my server` {
		t.Errorf("scope of echo: %+v, %v", scope, err)
	}
	if got := text(t, m, "mcp_my-server_echo", "text", "grüß\n"); got != "grüß\n" {
		t.Errorf("echo gave %q", got)
	}
	if r, err := call(t, m, "mcp_my-server_fail"); err != nil || !r.IsError || r.Text != "that went wrong" {
		t.Errorf("fail gave %+v, %v", r, err)
	}
	if got := text(t, m, "mcp_my-server_structured"); got != `{"a":"x","b":1}` {
		t.Errorf("structured gave %q", got)
	}
	mixed, err := call(t, m, "mcp_my-server_mixed")
	if err != nil || len(mixed.Images) != 1 || mixed.Images[0].Mime != "image/png" {
		t.Errorf("mixed gave %+v, %v", mixed, err)
	}
	wantText := "one\ntwo\n[x://bin, application/x, 2 bytes that are no text: left out]\n[sound, audio/wav, 2 bytes: left out]\n[resource x://three · three]"
	if diff := cmp.Diff(wantText, mixed.Text); diff != "" {
		t.Errorf("mixed (-want +got):\n%s", diff)
	}
	if got, want := text(t, m, "mcp_my-server_roots"), "file://"+dir+" true true"; got != want {
		t.Errorf("roots, refusal of sampling and of a question: got %q, want %q", got, want)
	}
	environment := text(t, m, "mcp_my-server_environment")
	if strings.Contains(environment, "canary") || !strings.Contains(environment, "\nGIVEN=this") || !strings.HasPrefix(environment, dir+"\n") {
		t.Errorf("directory and environment of the program:\n%s", environment)
	}
	if got, want := text(t, m, "mcp_my-server_list_resources"), "note://one · one · text/plain · a note\nnote://{name} · any"; got != want {
		t.Errorf("resources: got %q, want %q", got, want)
	}
	if got := text(t, m, "mcp_my-server_read_resource", "uri", "note://one"); got != "the note's text" {
		t.Errorf("resource: got %q", got)
	}
	if _, err := call(t, m, "mcp_my-server_read_resource", "uri", "note://none"); err == nil || !strings.Contains(err.Error(), "Resource not found") {
		t.Errorf("a resource that is not there: %v", err)
	}
	if got := find(t, m, "mcp_my-server_get_prompt").Spec().Description; !strings.HasSuffix(got, "\nreview(file): reviews a file") {
		t.Errorf("description of prompts: %q", got)
	}
	if got := text(t, m, "mcp_my-server_get_prompt", "name", "review", "arguments", map[string]string{"file": "a.go"}); got != "user:\nreview a.go" {
		t.Errorf("prompt: got %q", got)
	}
	if _, err := call(t, m, "mcp_my-server_read_resource", "url", "note://one"); err == nil || !strings.Contains(err.Error(), `"url"`) {
		t.Errorf("a wrong input: %v", err)
	}
}

// TestCrash ends the program in the middle of a call: that call fails and says
// how, the next one has a new program.
func TestCrash(t *testing.T) {
	m := manage(t, mcp.Options{Servers: []mcp.Server{self(t, "s", "good")}, Start: sandboxed(), Wait: 20 * time.Second})
	m.Prepare(t.Context())
	first := text(t, m, "mcp_s_pid")
	fails(t, m, "mcp_s_crash", "the MCP server s was lost during the call, which may have taken effect: it ended: exit status 3; it said: something is very wrong")
	gone(t, first)
	if got := status(m); got.State != protocol.MCPFailed || got.Tools != 11 {
		t.Errorf("after the crash: %+v", got)
	}
	m.Prepare(t.Context())
	if got := status(m); got.State != protocol.MCPFailed {
		t.Errorf("a turn started it again, though nobody called it: %+v", got)
	}
	if second := text(t, m, "mcp_s_pid"); second == first {
		t.Errorf("the process is still %s", first)
	}
	if got := status(m); got.State != protocol.MCPReady || got.Error != "" {
		t.Errorf("after the next call: %+v", got)
	}
}

// gone checks that there is no process of that id.
func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %s is still there: %v", pid, err)
	}
}

// TestBroken is about a program that ends at once: its reason is told, without
// the secrets that it blurts out.
func TestBroken(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	servers := mcp.Load(mcp.Files{
		Personal: write(t, `{"mcpServers":{"s":{"command":`+quoted(t)+`,"env":{"MCP_TEST_SERVER":"broken","TOKEN":"${TOKEN}"}}}}`),
		Environ:  []string{"TOKEN=s3cret-value"},
	})
	m := manage(t, mcp.Options{Servers: servers, Start: sandboxed(), Wait: 20 * time.Second, Log: zap.New(core)})
	m.Prepare(t.Context())
	got := status(m)
	want := "it ended: exit status 3; it said: cannot find my configuration; TOKEN is [secret]"
	if got.State != protocol.MCPFailed || got.Error != want {
		t.Errorf("status %+v, want %q", got, want)
	}
	said := 0
	for _, e := range logs.All() {
		for name, value := range e.ContextMap() {
			if s, ok := value.(string); ok && strings.Contains(s, "s3cret") {
				t.Errorf("the log has the secret: %s %s=%q", e.Message, name, s)
			}
		}
		if e.Message == "mcp server says" {
			said++
		}
	}
	if said != 1 {
		t.Errorf("%d lines of the server are in the log, want 1", said)
	}
}

// quoted is the path of the test binary as a JSON string.
func quoted(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Quote(exe)
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestClose ends a program that says nothing and does not mind its stdin.
func TestClose(t *testing.T) {
	m := manage(t, mcp.Options{Servers: []mcp.Server{self(t, "deaf", "deaf"), self(t, "good", "good")}, Start: sandboxed(), Wait: time.Millisecond})
	m.Prepare(t.Context())
	if err := m.Connect(t.Context(), "good", ""); err != nil {
		t.Fatal(err)
	}
	if got := status(m).State; got != protocol.MCPConnecting {
		t.Errorf("the deaf server is %s", got)
	}
	pid := text(t, m, "mcp_good_pid")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	fails(t, m, "mcp_good_pid", "the agent is ending")
}

// TestNoProgram names one that does not exist.
func TestNoProgram(t *testing.T) {
	m := manage(t, mcp.Options{Servers: []mcp.Server{{Name: "s", Command: "/no/such/program"}}, Start: sandboxed(), Wait: 20 * time.Second})
	m.Prepare(t.Context())
	if got := status(m); got.State != protocol.MCPFailed || !strings.Contains(got.Error, "no such file") {
		t.Errorf("status %+v", got)
	}
}
