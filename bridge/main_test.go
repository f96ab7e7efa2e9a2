package bridge_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/notes"
	"nexus.internal/protocol/rights"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen; nothing is asserted
// about the time it takes.
const patience = 20 * time.Second

// rig is a server on a port of its own, with children played in memory.
type rig struct {
	t        *testing.T
	home     string
	keys     *auth.Keyring
	key      auth.Key // the full one at the start
	addr     string
	launcher *supervisortest.Launcher
	sup      *supervisor.Supervisor
	records  openRecords // of an agent
	sessions *sessions.Catalogue
	server   *bridge.Server
	client   *client.Client
	logs     *logBuffer
	listener net.Listener
	served   chan struct{} // closed when Serve has returned
	stop     context.CancelFunc
}

// openRecords opens the records of agents.
type openRecords func(agent string) (supervisor.Records, error)

func (f openRecords) Open(agent string, _ bool) (supervisor.Records, error) { return f(agent) }

// rigged starts a server; change may adapt its options and its children.
func rigged(t *testing.T, change func(*rig, *bridge.Options)) *rig {
	t.Helper()
	r := &rig{
		t: t, home: t.TempDir(), logs: &logBuffer{},
		launcher: &supervisortest.Launcher{}, served: make(chan struct{}),
	}
	r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play { return supervisortest.Play{Command: stateful} }
	r.records = func(string) (supervisor.Records, error) { return supervisor.NoRecords{}, nil }
	r.sessions = sessions.New(r.home, nil)
	var err error
	if r.keys, err = auth.OpenKeyring(auth.KeyPath(r.home, 1), filepath.Join(r.home, "keys.json")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.keys.Close(); err != nil {
			t.Error(err)
		}
	})
	r.key = r.keys.Key()
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), r.logs, zap.DebugLevel))
	r.sup = supervisor.New(supervisor.Options{
		Launcher: r.launcher, Log: log,
		Store: openRecords(func(id string) (supervisor.Records, error) { return r.records(id) }),
	})

	ln, err := httpd.Listen("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	r.listener, r.addr = ln, ln.Addr().String()
	o := bridge.Options{
		Supervisor: r.sup, Sessions: r.sessions, Keys: r.keys, Addr: r.addr, Log: log, Version: "test",
		Settings: bridge.Settings{Settings: agents.Settings{Presets: map[string]string{"reviewer": rights.Sandboxed, "root": rights.Yolo}}},
		PlansDir: filepath.Join(r.home, "plans"), Notes: notes.OpenFile(r.home), Runtime: plainRuntime{new(sync.Map)}, Store: noStore{}, Status: figures{},
	}
	if change != nil {
		change(r, &o)
	}
	if r.server, err = bridge.New(o); err != nil {
		t.Fatal(err)
	}
	if r.client, err = client.New(client.Options{URL: "http://" + r.addr, Key: r.key, Retries: -1}); err != nil {
		t.Fatal(err)
	}
	r.run()
	return r
}

// run serves until the test ends, and joins everything then.
func (r *rig) run() {
	serving, stop := context.WithCancel(context.Background())
	r.stop = stop
	supervising, stopSup := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		defer close(r.served)
		if err := r.server.Serve(serving, r.listener); err != nil {
			r.t.Errorf("Serve: %v", err)
		}
	})
	work.Go(func() {
		if err := r.sup.Run(supervising); err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	r.t.Cleanup(func() {
		r.client.Close()
		stop()
		<-r.served
		stopSup()
		work.Wait()
	})
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) create(id string) {
	r.t.Helper()
	if _, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: &id}); err != nil {
		r.t.Fatal(err)
	}
}

// sendStream sends, and calls chunk with each text and restart, which may be nil,
// at each restart.
func (r *rig) sendStream(
	ctx context.Context, agent string, p api.SendParams, chunk func(string), restart func(),
) (result api.SendResult, err error) {
	for part, failed := range r.client.SendStream(ctx, agent, p) {
		if failed != nil {
			err = failed
		}
		switch part := part.(type) {
		case client.Result:
			result = api.SendResult(part)
		case client.Restart:
			if restart != nil {
				restart()
			}
		case client.Text:
			chunk(string(part))
		}
	}
	return result, err
}

// plays makes all children to come run their turns so.
func plays(turn func(*supervisortest.Child, protocol.Prompt)) func(*rig, *bridge.Options) {
	return func(r *rig, o *bridge.Options) {
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Prompt: turn, Command: stateful}
		}
		o.DrainTimeout = time.Millisecond
	}
}

// mcpServers are those that get_state tells of.
var mcpServers = []map[string]any{
	{"name": "files", "transport": "stdio", "state": "ready", "tools": 3, "note": "2 tools left out"},
	{"name": "theirs", "transport": "stdio", "state": "idle", "tools": 0, "project": true, "target": "sh server.sh"},
}

// connected is the answer to mcp_connect.
func connected(c protocol.MCPConnect) map[string]any {
	server := map[string]any{"name": c.Server, "transport": "stdio", "state": "ready", "tools": 3}
	if c.Server == "theirs" {
		if protocol.Value(c.Target) != "sh server.sh" {
			return map[string]any{"ok": false, "error": "mcp_connect: the project names it: allow it by its target, \"sh server.sh\""}
		}
		server["project"], server["target"] = true, "sh server.sh"
	}
	return map[string]any{"ok": true, "server": server}
}

// stateful answers get_state with everything that a nexus-child tells.
func stateful(c *supervisortest.Child, cmd protocol.Command) bool {
	preset := "sandboxed"
	switch {
	case strings.HasPrefix(c.Spec().ID, "trusted"):
		preset = "trusted"
	case strings.HasPrefix(c.Spec().ID, "yolo"):
		preset = "yolo"
	}
	switch cmd := cmd.(type) {
	case protocol.GetState:
		streaming, turn := c.Turn()
		c.Respond(cmd, map[string]any{
			"ok": true, "streaming": streaming, "turn_id": turn, "model": "echo", "provider": "test", "reasoning": false,
			"session_id": "session-" + c.Spec().ID, "message_count": len(c.Messages()), "cwd": "/site", "preset": preset,
			"system_prompt": "You are a test.", "system_prompt_path": "/site/NEXUS.md", "system_prompt_layers": []string{"/site/NEXUS.md"}, "environment": "Working directory: /site", "halted_at_iteration_limit": false,
			"permissions": map[string]any{
				"permission_level": preset, "disabled_tools": []string{"shell"},
				"policy": map[string]any{
					"cwd": "/site", "allowed_paths": []string{"/data"}, "write_paths": nil, "blocked_paths": []string{"/site/keys"},
					"tools": map[string]any{"write_file": map[string]any{"mode": "ask"}},
				},
				"session_allowances": map[string]any{
					"write_paths": []string{"/tmp/out"}, "exec_dirs": map[string]any{"shell": []string{"/site"}},
				},
				"ceiling": protocol.Permissions{
					Preset: preset, DisabledTools: []string{"shell"}, AllowedPaths: []string{"/data", "/site"}, BlockedPaths: []string{"/site/keys"},
				},
			},
			"mcp_servers": mcpServers,
			"tokens": map[string]int{
				"system": 150, "tools": 0, "messages": 42, "total": 192, "budget": 8000, "available": 6000,
			},
		})
		return true
	case protocol.ToolsList:
		c.Respond(cmd, map[string]any{"ok": true, "tools": []api.Tool{
			{Name: "sleep", Description: "Wait for a number of seconds.", InputSchema: jsontext.Value(`{"type":"object"}`)},
		}})
		return true
	case protocol.PermissionResponse:
		if cmd.RequestID != "p7" {
			break
		}
		c.Respond(cmd, map[string]any{"ok": true})
		outcome := "allowed"
		if cmd.Decision == protocol.Deny {
			outcome = "denied"
		}
		c.Emit(protocol.PermissionEnd{RequestID: cmd.RequestID, Outcome: outcome})
		return true
	case protocol.SetCwd:
		if cmd.Cwd == "/asks" { // so that the question is there before the answer
			c.Emit(protocol.PermissionRequest{
				RequestID: "p7", TurnID: "t", ToolID: "call_1", ToolName: "shell", Action: protocol.ActionExecute, Summary: "run make",
				Reason: "it runs a program", Input: jsontext.Value(`{"command":"make"}`), Paths: []string{"/asks"},
				Deadline: "2026-01-20T09:11:02Z", Decisions: []protocol.Decision{protocol.AllowOnce, protocol.Deny},
			})
		}
		if cmd.Cwd == "/none" {
			c.Respond(cmd, map[string]any{"ok": false, "error": "set_cwd: /none is not a directory"})
			return true
		}
	case protocol.SetPermissions:
		if rules := cmd.Permissions; rules != nil { // what is asked for is what is refused, so that it can be seen
			text, _ := json.Marshal(rules, json.Deterministic(true))
			c.Respond(cmd, map[string]any{"ok": false, "error": "set_permissions: " + string(text)})
			return true
		}
		if *cmd.Preset == "trusted" && preset == "sandboxed" {
			c.Respond(cmd, map[string]any{"ok": false, "error": "set_permissions: the preset trusted (at most sandboxed)"})
			return true
		}
	case protocol.Compact:
		if len(c.Messages()) > 0 || c.Spec().ID == "copycat" { // which is of another make
			break // the conversation is short
		}
		c.Respond(cmd, map[string]any{
			"ok": true, "compacted": true, "summary": "They talked.", "by": "model", "tokens_before": 900, "tokens_after": 90,
		})
		return true
	case protocol.MCPConnect:
		c.Respond(cmd, connected(cmd))
		return true
	case protocol.MCPDisconnect:
		answer := map[string]any{"ok": false, "error": "mcp_disconnect: there is no such MCP server: \"none\""}
		if cmd.Server != "none" {
			answer = map[string]any{"ok": true, "server": map[string]any{
				"name": cmd.Server, "transport": "stdio", "state": "disabled", "tools": 3, "error": "it was disconnected",
			}}
		}
		c.Respond(cmd, answer)
		return true
	case protocol.SetModel:
		if c.Spec().ID == "copycat" {
			c.Respond(cmd, map[string]any{"ok": false, "error": "set_model: an agent of kind copycat does not offer this", "reason": protocol.Unsupported})
			return true
		}
		if cmd.Model == "none" {
			c.Respond(cmd, map[string]any{"ok": false, "error": "unknown model none"})
			return true
		}
	}
	return false
}

// post sends a body with the key and returns the response with its body read.
func (r *rig) post(path, body string, headers ...string) (*http.Response, string) {
	r.t.Helper()
	return r.do(http.MethodPost, path, strings.NewReader(body), headers...)
}

func (r *rig) do(method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.ctx(), method, "http://"+r.addr+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+r.key.Reveal())
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response, string(data)
}

// raw writes bytes to a connection of its own and reads one response.
func (r *rig) raw(request string) (*http.Response, string) {
	r.t.Helper()
	conn := r.dial()
	if _, err := io.WriteString(conn, request); err != nil {
		r.t.Fatal(err)
	}
	return readResponse(r.t, bufio.NewReader(conn))
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := net.DialTimeout("tcp", r.addr, patience)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

func readResponse(t *testing.T, in *bufio.Reader) (*http.Response, string) {
	t.Helper()
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("read response: %v", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	return response, string(body)
}

// head is the start of a raw request with all that is needed but a length.
func (r *rig) head(line string) string {
	return line + "\r\nHost: " + r.addr + "\r\nAuthorization: Bearer " + r.key.Reveal() + "\r\n"
}

func withLength(head, body string) string {
	return head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu      sync.Mutex // guards what follows
	buf     bytes.Buffer
	waiting map[string]chan struct{} // by the text that is waited for
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p)
	for text, seen := range l.waiting {
		if bytes.Contains(p, []byte(text)) {
			close(seen)
			delete(l.waiting, text)
		}
	}
	return len(p), nil
}

// seen is closed once a line with the text has been logged from now on.
func (l *logBuffer) seen(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[string]chan struct{}{}
	}
	l.waiting[text] = make(chan struct{})
	return l.waiting[text]
}

func (*logBuffer) Sync() error { return nil }

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
