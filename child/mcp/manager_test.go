package mcp_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/child/mcp"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// TestPauses is about a server that can never be started: it is tried again with
// the turns, after pauses.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		m := one(t, func(context.Context, mcp.Spec) (mcp.Process, error) {
			at = append(at, time.Since(began))
			return nil, errors.New("no such file")
		})
		for range 300 {
			time.Sleep(time.Second) // in the bubble's time
			m.Prepare(t.Context())
			synctest.Wait()
		}
		want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 64, 124, 184, 244}
		if len(at) != len(want) {
			t.Fatalf("tried after %v", at)
		}
		for i := range want {
			if at[i] != want[i]*time.Second {
				t.Errorf("try %d after %v, want %v s", i, at[i], int(want[i]))
			}
		}
		if got := status(m); got.State != protocol.MCPFailed || got.Error != "no such file" {
			t.Errorf("status %+v", got)
		}
	})
}

// TestSlowStart is about a server that takes its time: a turn waits 2 s once,
// the start ends after 30.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := one(t, within(func(ctx context.Context, _ io.ReadCloser, _ io.WriteCloser) { <-ctx.Done() }))
		m.Prepare(t.Context())
		if waited := time.Since(began); waited != 2*time.Second || status(m).State != protocol.MCPConnecting {
			t.Errorf("waited for %v, %s", waited, status(m).State)
		}
		err := m.Connect(t.Context(), "s", "")
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "connect the MCP server s: it was not ready after 30s") || took > 31*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestEndOfStart ends a server that is still being started.
func TestEndOfStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := one(t, within(func(ctx context.Context, _ io.ReadCloser, _ io.WriteCloser) { <-ctx.Done() }))
		began := time.Now()
		if err := m.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := status(m); got.State != protocol.MCPIdle {
			t.Errorf("after a restart: %+v", got)
		}
		m.Prepare(t.Context())
		if err := m.Disconnect(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 4*time.Second { // 2 of it in Prepare
			t.Errorf("that took %v", took)
		}
	})
}

// TestRestartWhileAsked changes the permissions, and restarts the servers, while
// they are asked whether a server may be started: the answer of before is not
// used. Otherwise the server ran though it was not permitted, and no restart came
// to end it.
func TestRestartWhileAsked(t *testing.T) {
	for name, start := range map[string]func(*mcp.Manager){
		"turn": func(m *mcp.Manager) { m.Prepare(t.Context()) },
		"call": func(m *mcp.Manager) { _ = m.Connect(t.Context(), "s", "") },
	} {
		t.Run(name, func(t *testing.T) {
			var m *mcp.Manager
			var forbidden error
			m = manage(t, mcp.Options{
				Servers: []mcp.Server{{Name: "s", Command: "x"}},
				Start: func(context.Context, mcp.Spec) (mcp.Process, error) {
					t.Error("it is started")
					return nil, errors.New("no such file")
				},
				Environment: environment{permit: func(mcp.Server) error {
					answer := forbidden
					if answer == nil {
						forbidden = errors.New("it is forbidden now")
						if err := m.Restart(t.Context()); err != nil {
							t.Error(err)
						}
					}
					return answer
				}},
			})
			start(m)
			if got := status(m); got.State != protocol.MCPDisabled || got.Error != "it is forbidden now" {
				t.Errorf("status %+v", got)
			}
		})
	}
}

// TestCrashLoop is about a server that crashes at every call.
func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := one(t, raw(func(_ context.Context, _ string, _ int64, out io.Writer) { out.(io.Closer).Close() }))
		fails(t, m, "mcp_s_t", "was lost during the call", "it ended")
		fails(t, m, "mcp_s_t", "was lost during the call")
		fails(t, m, "mcp_s_t", "it is tried again in 1s at the earliest")
		time.Sleep(time.Second) // in the bubble's time
		fails(t, m, "mcp_s_t", "was lost during the call")
	})
}

// TestListChanged lets a server get a tool while it runs.
func TestListChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, told := observer.New(zap.InfoLevel)
		m := manage(t, mcp.Options{
			Servers: []mcp.Server{{Name: "s", Command: "x"}}, Start: serving(nil), Log: zap.New(core),
		})
		m.Prepare(t.Context())
		old := find(t, m, "mcp_s_echo")
		text(t, m, "mcp_s_grow")
		time.Sleep(2 * time.Second) // in the bubble's time
		synctest.Wait()
		if got := told.FilterMessage("mcp server has other tools").Len(); got != 1 {
			t.Errorf("%d changes after a tool came", got)
		}
		if got := text(t, m, "mcp_s_grown"); got != "I am new" {
			t.Errorf("the new tool gave %q", got)
		}
		if r, err := old.Run(t.Context(), tool.Call{Input: input(t, "text", "as before")}); err != nil || r.Text != "as before" {
			t.Errorf("a tool from before: %+v, %v", r, err)
		}
	})
}

// TestProject is about what a project's file names: it takes a call that was
// allowed.
func TestProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		inner := serving(nil)
		m := manage(t, mcp.Options{
			Servers: []mcp.Server{{Name: "p", Project: true, Command: "run me", Args: []string{"it's"}, Env: map[string]string{"A": "b"}}},
			Start:   func(ctx context.Context, s mcp.Spec) (mcp.Process, error) { starts++; return inner(ctx, s) },
		})
		m.Prepare(t.Context())
		tools := m.Tools()
		if starts != 0 || len(tools) != 1 || tools[0].Spec().Name != "mcp_p_connect" {
			t.Fatalf("%d starts and %d tools before anybody agreed", starts, len(tools))
		}
		if got := status(m); got.State != protocol.MCPIdle || got.Note != "the project names it: call mcp_p_connect first" {
			t.Errorf("status %+v", got)
		}
		scope, err := tools[0].(tool.Scoped).Scope(input(t))
		const line = `A=b 'run me' 'it'\''s'`
		if err != nil || scope.Action != protocol.ActionExecute || scope.Command != line || len(scope.Programs) != 1 || scope.Programs[0] != line {
			t.Errorf("scope %+v, %v", scope, err)
		}
		if got := text(t, m, "mcp_p_connect"); !strings.Contains(got, "mcp_p_echo") {
			t.Errorf("connect says %q", got)
		}
		if got := text(t, m, "mcp_p_echo", "text", "x"); got != "x" || starts != 1 {
			t.Errorf("echo gave %q after %d starts", got, starts)
		}
		if err := m.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tools := m.Tools(); len(tools) != 1 || tools[0].Spec().Name != "mcp_p_connect" {
			t.Errorf("after a restart there are %d tools", len(tools))
		}
		for _, target := range []string{"", "run me", line + " "} {
			if err := m.Connect(t.Context(), "p", target); err == nil || !strings.Contains(err.Error(), "allow it by its target") || starts != 1 {
				t.Errorf("allowed by %q: %v, %d starts", target, err, starts)
			}
		}
		if err := m.Connect(t.Context(), "p", status(m).Target); err != nil || starts != 2 {
			t.Errorf("allowed by what status says: %v, %d starts", err, starts)
		}
	})
}

// An allowance to connect what a project names by its address is for that address.
func TestProjectsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, mcp.Options{Servers: []mcp.Server{{Name: "p", Project: true, URL: "https://a.example/mcp"}}})
		scope, err := m.Tools()[0].(tool.Scoped).Scope(input(t))
		if err != nil || scope.Action != protocol.ActionExternal || !slices.Equal(scope.Programs, []string{"https://a.example/mcp"}) {
			t.Errorf("scope %+v, %v", scope, err)
		}
	})
}

// A program of the project that has ended is not started again unasked: the agent may have
// changed what it runs.
func TestProjectIsAskedAboutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		inner := serving(nil)
		var process mcp.Process
		m := manage(t, mcp.Options{
			Servers: []mcp.Server{{Name: "p", Project: true, Command: "x"}},
			Start: func(ctx context.Context, s mcp.Spec) (mcp.Process, error) {
				starts++
				var err error
				process, err = inner(ctx, s)
				return process, err
			},
		})
		text(t, m, "mcp_p_connect")
		echo := find(t, m, "mcp_p_echo")
		process.Kill()
		synctest.Wait()
		m.Prepare(t.Context())
		if _, err := echo.Run(t.Context(), tool.Call{Input: input(t)}); err == nil || !strings.Contains(err.Error(), "call mcp_p_connect first") || starts != 1 {
			t.Errorf("a call of a server that has ended: %v, %d starts", err, starts)
		}
		if tools := m.Tools(); len(tools) != 1 || tools[0].Spec().Name != "mcp_p_connect" {
			t.Errorf("%d tools", len(tools))
		}
		text(t, m, "mcp_p_connect")
		if got := text(t, m, "mcp_p_echo", "text", "x"); got != "x" || starts != 2 {
			t.Errorf("echo gave %q after %d starts", got, starts)
		}
	})
}

// TestApprovalShowsWhatRuns has names in a project's file that read like something else: a
// program like the value of a variable, and a server like the end of the sentence.
func TestApprovalShowsWhatRuns(t *testing.T) {
	const line = `'A=b/c' ls`
	for before, env := range map[string]string{"": "", "A=" + strings.Repeat("x", 400) + " ": strings.Repeat("x", 400)} {
		server := mcp.Server{Name: "x of this project: ls #", Project: true, Command: "A=b/c", Args: []string{"ls"}}
		if env != "" { // which would fill the summary
			server.Env = map[string]string{"A": env}
		}
		m := manage(t, mcp.Options{Servers: []mcp.Server{server}})
		m.Prepare(t.Context())
		scope, err := m.Tools()[0].(tool.Scoped).Scope(input(t))
		if err != nil || scope.Command != before+line || scope.Summary != "run: "+line+", as the MCP server 'x of this project: ls #' of this project" {
			t.Errorf("scope %+v, %v", scope, err)
		}
	}
}

// TestNotConnected is about a personal server that was never connected: the model
// is told why, and can try again.
func TestNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("no\nsuch file")
		inner := serving(nil)
		m := one(t, func(ctx context.Context, s mcp.Spec) (mcp.Process, error) {
			if down != nil {
				return nil, down
			}
			return inner(ctx, s)
		})
		synctest.Wait()
		tools := m.Tools()
		if len(tools) != 1 || tools[0].Spec().Name != "mcp_s_connect" {
			t.Fatalf("%d tools", len(tools))
		}
		const description = "The MCP server s is not connected: no such file. This tries to connect it. Its tools are there from the next message on."
		if got := tools[0].Spec().Description; got != description {
			t.Errorf("description %q", got)
		}
		scope, err := tools[0].(tool.Scoped).Scope(input(t))
		if err != nil || scope.Action != protocol.ActionExternal || scope.Command != "" || scope.Summary != "connect the MCP server s" {
			t.Errorf("scope %+v, %v", scope, err)
		}
		fails(t, m, "mcp_s_connect", "the MCP server s: no\nsuch file")
		fails(t, m, "mcp_s_connect", "it is tried again in 1s at the earliest")
		time.Sleep(time.Second) // in the bubble's time
		down = nil
		if got := text(t, m, "mcp_s_connect"); !strings.Contains(got, "mcp_s_echo") || strings.Contains(got, "mcp_s_connect") {
			t.Errorf("connect says %q", got)
		}
		if got := text(t, m, "mcp_s_echo", "text", "x"); got != "x" {
			t.Errorf("echo gave %q", got)
		}
		for _, tl := range m.Tools() {
			if tl.Spec().Name == "mcp_s_connect" {
				t.Error("connect is still there")
			}
		}
		if err := m.Disconnect(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if _, err := tools[0].Run(t.Context(), tool.Call{Input: input(t)}); err == nil || err.Error() != "the MCP server s: it was disconnected" {
			t.Errorf("a connect of a server that was disconnected: %v", err)
		}
	})
}

// TestNotConnectedYet is about a server that takes longer than a turn waits, and
// one of a project that was allowed and failed.
func TestNotConnectedYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := one(t, within(func(ctx context.Context, _ io.ReadCloser, _ io.WriteCloser) { <-ctx.Done() }))
		if got := find(t, m, "mcp_s_connect").Spec().Description; !strings.Contains(got, "s is not connected: it is still being started. ") {
			t.Errorf("description %q", got)
		}
		fails(t, m, "mcp_s_connect", "it was not ready after 30s")
		p := manage(t, mcp.Options{
			Servers: []mcp.Server{{Name: "p", Project: true, Command: "x"}},
			Start:   func(context.Context, mcp.Spec) (mcp.Process, error) { return nil, errors.New("no such file") },
		})
		fails(t, p, "mcp_p_connect", "no such file")
		again := find(t, p, "mcp_p_connect")
		if got := again.Spec().Description; got != "Start the MCP server p, which this project names (x): no such file. Its tools are there from the next message on." {
			t.Errorf("description %q", got)
		}
		if scope, err := again.(tool.Scoped).Scope(input(t)); err != nil || scope.Action != protocol.ActionExecute {
			t.Errorf("scope %+v, %v", scope, err)
		}
	})
}

// TestConnect is about servers that are ended and started by hand.
func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var forbidden error
		m := manage(t, mcp.Options{
			Servers: []mcp.Server{{Name: "s", Command: "x", Disabled: true}}, Start: serving(nil),
			Environment: environment{permit: func(mcp.Server) error { return forbidden }},
		})
		m.Prepare(t.Context())
		if got := status(m); got.State != protocol.MCPDisabled || got.Error != "it is disabled in mcp.json" {
			t.Errorf("at first: %+v", got)
		}
		forbidden = errors.New("sandboxed agents use no MCP servers")
		if err := m.Connect(t.Context(), "s", ""); err == nil || err.Error() != "connect the MCP server s: sandboxed agents use no MCP servers" {
			t.Errorf("a connect that is not permitted: %v", err)
		}
		if got := status(m); got.State != protocol.MCPDisabled || got.Error != forbidden.Error() {
			t.Errorf("not permitted: %+v", got)
		}
		forbidden = nil
		if err := m.Connect(t.Context(), "s", ""); err != nil || status(m).State != protocol.MCPReady {
			t.Errorf("connect: %v, %+v", err, status(m))
		}
		echo := find(t, m, "mcp_s_echo")
		if err := m.Disconnect(t.Context(), "s"); err != nil || status(m).State != protocol.MCPDisabled || len(m.Tools()) != 0 {
			t.Errorf("disconnect: %v, %+v, %d tools", err, status(m), len(m.Tools()))
		}
		if _, err := echo.Run(t.Context(), tool.Call{Input: input(t)}); err == nil || err.Error() != "the MCP server s: it was disconnected" {
			t.Errorf("a call of a server that was disconnected: %v", err)
		}
		if err := m.Connect(t.Context(), "s", ""); err != nil || len(m.Tools()) == 0 {
			t.Errorf("connect again: %v, %d tools", err, len(m.Tools()))
		}
		for _, err := range []error{m.Connect(t.Context(), "other", ""), m.Disconnect(t.Context(), "other")} {
			if !errors.Is(err, mcp.ErrUnknown) {
				t.Errorf("another name: %v", err)
			}
		}
	})
}

// TestRestart ends the program; the next call starts it where the agent is then.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cwd := "/one"
		var dirs []string
		inner := serving(nil)
		m := manage(t, mcp.Options{
			Servers: []mcp.Server{{Name: "s", Command: "x", Cwd: "sub"}}, Environment: environment{cwd: &cwd},
			Start: func(ctx context.Context, s mcp.Spec) (mcp.Process, error) {
				dirs = append(dirs, s.Dir)
				return inner(ctx, s)
			},
		})
		m.Prepare(t.Context())
		cwd = "/two"
		if err := m.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := text(t, m, "mcp_s_roots"); !strings.HasPrefix(got, "file:///two ") || strings.Join(dirs, " ") != "/one/sub /two/sub" {
			t.Errorf("started in %v, roots %q", dirs, got)
		}
	})
}

// TestParallel starts one program for many calls.
func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int32
		inner := serving(nil)
		m := one(t, func(ctx context.Context, s mcp.Spec) (mcp.Process, error) { starts.Add(1); return inner(ctx, s) })
		if err := m.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		echo := find(t, m, "mcp_s_echo")
		done := make(chan error)
		for range 20 {
			go func() {
				_, err := echo.Run(t.Context(), tool.Call{Input: input(t, "text", "x")})
				done <- err
			}()
		}
		for range 20 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := starts.Load(); got != 2 {
			t.Errorf("%d programs were started, want 2", got)
		}
	})
}

// TestLongCall is about a server that may take its time, by its timeout_s.
func TestLongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manage(t, mcp.Options{Servers: []mcp.Server{{Name: "s", Command: "x", Timeout: time.Hour}}, Start: serving(nil)})
		m.Prepare(t.Context())
		if err := m.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := find(t, m, "mcp_s_echo").(tool.Timed).TimeLimit(nil); got <= time.Hour {
			t.Errorf("a call ends after %v", got)
		}
	})
}

// TestResultBounds cuts a long text at a character.
func TestResultBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := one(t, serving(nil))
		got := text(t, m, "mcp_s_big", "n", 3<<20)
		if want := strings.Repeat("é", 1<<19) + "\n[2097152 bytes more are left out]"; got != want {
			t.Errorf("got %d bytes that end in %q", len(got), got[len(got)-50:])
		}
		if r, err := call(t, m, "mcp_s_mixed"); err != nil || len(r.Images) != 0 || !strings.Contains(r.Text, "[picture, image/png, 3 bytes: left out]") {
			t.Errorf("a picture that nobody keeps: %+v, %v", r, err)
		}
	})
}

// TestProblem is about a server that cannot be used, as a variable is not set.
func TestProblem(t *testing.T) {
	m := manage(t, mcp.Options{Servers: []mcp.Server{{Name: "s", Command: "x", Problem: "the variable T is not set"}}, Start: serving(nil)})
	m.Prepare(t.Context())
	if got := status(m); got.State != protocol.MCPFailed || got.Error != "the variable T is not set" || len(m.Tools()) != 0 {
		t.Errorf("status %+v, %d tools", got, len(m.Tools()))
	}
	if err := m.Connect(t.Context(), "s", ""); err == nil || !strings.Contains(err.Error(), "the variable T is not set") {
		t.Errorf("connect: %v", err)
	}
}
