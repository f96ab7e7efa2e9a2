package main_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nexus.internal/bridge/api"
)

// mcpSession is a client of MCP, the SDK's, that has started nexus mcp.
type mcpSession struct {
	*testing.T
	*mcp.ClientSession
	told chan *mcp.ProgressNotificationParams
}

// newMCP starts nexus mcp for the server s.
func newMCP(t *testing.T, s *live) *mcpSession {
	t.Helper()
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programs, "nexus"), "mcp", "--home", s.home, "--port", at.Port())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "GORACE=atexit_sleep_ms=0"}
	cmd.Dir, cmd.Stderr = s.cwd, t.Output()
	m := &mcpSession{T: t, told: make(chan *mcp.ProgressNotificationParams, 1000)}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { m.told <- r.Params },
	})
	if m.ClientSession, err = c.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("nexus mcp ended with %v", err)
		}
		endLeftOver(s.home)
	})
	return m
}

// start calls a tool that tells its progress by the name token.
func (m *mcpSession) start(ctx context.Context, token, tool string, args map[string]any) (*mcp.CallToolResult, error) {
	p := &mcp.CallToolParams{Name: tool, Arguments: args}
	p.SetProgressToken(token)
	return m.CallTool(ctx, p)
}

// as is the structured result of a tool.
func as[R any](m *mcpSession, tool string, args map[string]any) R {
	m.Helper()
	result, err := m.start(m.Context(), tool, tool, args)
	if err != nil || result.IsError {
		m.Fatalf("%s %v: %v, %s", tool, args, err, said(result))
	}
	text, err := json.Marshal(result.StructuredContent)
	if err != nil {
		m.Fatal(err)
	}
	var r R
	if err := json.Unmarshal(text, &r, json.RejectUnknownMembers(true)); err != nil {
		m.Fatalf("%s: %v in %s", tool, err, text)
	}
	return r
}

// said is the text of a result.
func said(r *mcp.CallToolResult) string {
	if r == nil || len(r.Content) != 1 {
		return ""
	}
	text, _ := r.Content[0].(*mcp.TextContent)
	return text.Text
}

// busy waits until the agent has a turn.
func (m *mcpSession) busy(agent string) {
	m.Helper()
	eventually(m.T, "a turn of "+agent, func() (struct{}, error) {
		if as[api.ListAgentsResult](m, "status", map[string]any{"agent_id": agent}).Agents[0].State != "busy" {
			return struct{}{}, errors.New("none runs")
		}
		return struct{}{}, nil
	})
}

// The agents of a server as tools of MCP, by the official client.
func TestAgentsAsToolsOfMCP(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	m := newMCP(t, s)
	tools, err := m.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		if tool.Description == "" || tool.InputSchema == nil || tool.OutputSchema == nil {
			t.Errorf("%s is not described", tool.Name)
		}
	}
	if got := strings.Join(names, " "); got != "cancel create_agent run_plan send status" {
		t.Errorf("tools %s", got)
	}

	if got := as[api.CreateAgentResult](m, "create_agent", map[string]any{"agent_id": "a"}); got.AgentID != "a" {
		t.Errorf("created %+v", got)
	}
	if got := as[api.SendResult](m, "send", map[string]any{"agent_id": "a", "content": "echo hi", "request_id": "first"}); got.Content == nil || *got.Content != "hi" {
		t.Errorf("sent: %+v", got)
	}
	if told := <-m.told; told.ProgressToken != "send" || told.Message != "sent to a, request_id first" {
		t.Errorf("told %+v", told)
	}
	if got := as[api.SendResult](m, "send", map[string]any{"agent_id": "a", "content": "echo hi", "request_id": "first"}); !got.Replayed {
		t.Errorf("sent again: %+v", got)
	}
	agents := as[api.ListAgentsResult](m, "status", nil).Agents
	if len(agents) != 1 || agents[0].Cwd == nil || *agents[0].Cwd != s.cwd {
		t.Errorf("agents %+v, want a in %s", agents, s.cwd)
	}
	plan := as[api.RunPlanResult](m, "run_plan", map[string]any{"request_id": "run", "tasks": []map[string]any{
		{"id": "one", "type": "analysis", "description": "Look"}, {"id": "two", "type": "analysis", "description": "Look again", "dependencies": []string{"one"}},
	}})
	if plan.Status != api.PlanCompleted || len(plan.Tasks) != 2 || plan.Tasks[1].Result == nil {
		t.Errorf("run %+v", plan)
	}
	for want, args := range map[string]map[string]any{
		"AGENT_NOT_FOUND":  {"agent_id": "nobody", "content": "hi"},
		"want a name like": {"agent_id": "../a", "content": "hi"},
		"INVALID_PARAMS":   {"agent_id": "a", "content": ""},
		"content":          {"agent_id": "a"},
		"additional prope": {"agent_id": "a", "content": "hi", "auth": "x"},
		"enum":             {"agent_id": "a", "content": "hi", "when_busy": "never"},
	} {
		result, err := m.start(t.Context(), want, "send", args)
		if err != nil || !result.IsError || !strings.Contains(said(result), want) {
			t.Errorf("send %v: %v, %q, want a tool error with %q", args, err, said(result), want)
		}
	}
}

// A call that the client cancels ends the turn, or the run.
func TestCancelledCallOfMCP(t *testing.T) {
	t.Parallel()
	m := newMCP(t, newLive(t, nil))
	as[api.CreateAgentResult](m, "create_agent", map[string]any{"agent_id": "a"})
	long := map[string]any{"agent_id": "a", "content": "count to 100000", "request_id": "long"}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := m.start(ctx, "long", "send", long)
		ended <- err
	}()
	m.busy("a")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	// The same request waits for the turn if that goes on.
	if got := as[api.SendResult](m, "send", long); !got.Cancelled {
		t.Errorf("the turn ended as %+v", got)
	}

	run := map[string]any{"agents": []string{"a"}, "request_id": "run", "tasks": []map[string]any{{"id": "one", "type": "analysis", "description": "count to 100000"}}}
	hold := map[string]any{"agent_id": "a", "content": "count to 100000", "request_id": "hold"}
	holds := make(chan *mcp.CallToolResult)
	go func() {
		result, _ := m.start(t.Context(), "hold", "send", hold)
		holds <- result
	}()
	m.busy("a") // so that the task waits
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		_, err := m.start(ctx, "run", "run_plan", run)
		ended <- err
	}()
	for told := range m.told {
		if told.ProgressToken == "run" && strings.HasPrefix(told.Message, "one: begun") {
			break
		}
	}
	cancel()
	<-ended
	if got := as[api.RunPlanResult](m, "run_plan", run); got.Status != api.PlanCancelled {
		t.Errorf("the run ended as %+v", got)
	}
	if got := as[api.CancelResult](m, "cancel", map[string]any{"agent_id": "a", "request_id": "hold"}); !got.Cancelled {
		t.Errorf("cancel: %+v", got)
	}
	if got := <-holds; got == nil || got.IsError || !strings.Contains(said(got), `"cancelled":true`) {
		t.Errorf("the cancelled send: %s", said(got))
	}
}

// A server that is killed fails the calls that it was at; the next one starts a server.
func TestKilledServerOfMCP(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	m := newMCP(t, s)
	as[api.CreateAgentResult](m, "create_agent", map[string]any{"agent_id": "a"})
	failed := make(chan string)
	go func() {
		result, err := m.start(t.Context(), "long", "send", map[string]any{"agent_id": "a", "content": "count to 100000"})
		if err != nil || !result.IsError {
			t.Errorf("a send to a server that is killed: %v, %v", err, said(result))
		}
		failed <- said(result)
	}()
	m.busy("a")
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // as killed
	got := <-failed
	id := regexp.MustCompile(`^NO_SERVER: the server has ended, and the next call starts it again\nThe same send with request_id (\S+) tells how the turn ended and does not run it again, which a new one does\.$`).FindStringSubmatch(got)
	if id == nil {
		t.Fatalf("the call failed with %q", got)
	}
	result, err := m.start(t.Context(), "again", "send", map[string]any{"agent_id": "a", "content": "count to 100000", "request_id": id[1]})
	if err != nil || !result.IsError || !strings.Contains(said(result), "the server ended before the turn did") {
		t.Errorf("the same send again: %v, %s", err, said(result))
	}
	if got := as[api.SendResult](m, "send", map[string]any{"agent_id": "a", "content": "echo again"}); got.Content == nil || *got.Content != "again" {
		t.Errorf("sent: %+v", got)
	}
}
