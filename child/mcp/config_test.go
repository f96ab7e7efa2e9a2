package mcp_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nexus.internal/child/mcp"
	"nexus.internal/protocol"
)

func TestLoad(t *testing.T) {
	personal := write(t, `{"mcpServers":{
		"files":{"command":"npx","args":["-y","server-files","/data"],"env":{"LEVEL":"info","TOKEN":"${MY_TOKEN}","MODE":"${MODE:-fast}"},"cwd":"/srv","timeout_s":1.5},
		"web":{"type":"http","url":"https://example.com/mcp","headers":{"Authorization":"Bearer ${MY_TOKEN}"},"allowed_tools":["a"]},
		"off":{"type":"stdio","command":"x","disabled":true,"allowed_tools":[]},
		"poor":{"command":"x","env":{"K":"${NOT_SET}"}}}}`)
	project := write(t, `{"mcpServers":{
		"local":{"command":"./serve","args":["$HOME"]},
		"FILES":{"command":"other"},
		"files":{"command":"evil"}}}`)
	got := mcp.Load(mcp.Files{Personal: personal, Project: project, Environ: []string{"OTHER=x", "MY_TOKEN=tok-12345"}})
	minute := mcp.DefaultTimeout
	want := []mcp.Server{
		{
			Name: "files", Command: "npx", Args: []string{"-y", "server-files", "/data"}, Cwd: "/srv",
			Env: map[string]string{"LEVEL": "info", "TOKEN": "tok-12345", "MODE": "fast"}, Timeout: 1500 * time.Millisecond,
		},
		{Name: "off", Command: "x", Disabled: true, AllowedTools: []string{}, Timeout: minute},
		{
			Name: "poor", Command: "x", Env: map[string]string{"K": ""}, Timeout: minute,
			Problem: "the variable NOT_SET is not set for this agent, which K of mcp.json needs: the env of create_agent sets it (nexus-rpc create --env)",
		},
		{
			Name: "web", URL: "https://example.com/mcp", Headers: map[string]string{"Authorization": "Bearer tok-12345"},
			AllowedTools: []string{"a"}, Timeout: minute,
		},
		{Name: "FILES", Project: true, Command: "other", Timeout: minute},
		{Name: "local", Project: true, Command: "./serve", Args: []string{"$HOME"}, Timeout: minute},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(mcp.Server{})); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

func TestLoadNothing(t *testing.T) {
	for _, f := range []mcp.Files{
		{},
		{Personal: filepath.Join(t.TempDir(), "none.json")},
		{Personal: write(t, `{}`), Project: write(t, `{"mcpServers":{}}`)},
	} {
		if got := mcp.Load(f); len(got) != 0 {
			t.Errorf("%+v: %v", f, got)
		}
	}
}

// TestLoadRefuses has one wrong thing in each file.
func TestLoadRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, server, want string
		project            bool
	}{
		{"nothing", `{}`, `member "mcpServers.s" has neither command nor url`, false},
		{"both", `{"command":"x","url":"http://localhost/"}`, "a server is a program or an address", false},
		{"headers of a program", `{"command":"x","headers":{"A":"b"}}`, "a server is a program or an address", false},
		{"arguments of an address", `{"url":"http://localhost/","args":["x"]}`, "which are for programs", false},
		{"an unknown member", `{"command":"x","autoApprove":[]}`, `member "mcpServers.s.autoApprove" is not known`, false},
		{"a type of its own", `{"command":"x","type":"http"}`, `.type" is "http"`, false},
		{"the old transport", `{"url":"http://localhost/sse","type":"sse"}`, "was replaced by streamable HTTP", false},
		{"no time", `{"command":"x","timeout_s":0}`, "must be above 0 and at most 3600", false},
		{"too much time", `{"command":"x","timeout_s":3601}`, "must be above 0 and at most 3600", false},
		{"another scheme", `{"url":"file:///etc/passwd"}`, "is no http or https URL", false},
		{"a user", `{"url":"https://me:secret@example.com/"}`, "has a user: use headers", false},
		{"headers in the clear", `{"url":"http://example.com/","headers":{"A":"b"}}`, "must be https, as there are headers", false},
		{"a header of ours", `{"url":"https://example.com/","headers":{"Host":"b"}}`, `member "mcpServers.s.headers.Host" is no header or cannot be set`, false},
		{"two headers in one", `{"url":"https://example.com/","headers":{"A":"b\r\nC: d"}}`, `member "mcpServers.s.headers.A" is no header or cannot be set`, false},
		{"a variable of the loader", `{"command":"x","env":{"LD_PRELOAD":"y"}}`, `member "mcpServers.s.env.LD_PRELOAD" cannot be set`, false},
		{"a command in the name of a variable", `{"command":"x","env":{"echo hello #":"1"}}`, `member "mcpServers.s.env.echo hello #" has no name of a variable`, true},
		{"a variable without a name", `{"command":"x","env":{"":"1"}}`, `member "mcpServers.s.env." has no name of a variable`, false},
		{"a variable that begins with a digit", `{"command":"x","env":{"1A":"1"}}`, `member "mcpServers.s.env.1A" has no name of a variable`, false},
		{"a variable with an assignment in its name", `{"command":"x","env":{"A=b":"1"}}`, `member "mcpServers.s.env.A=b" has no name of a variable`, false},
		{"a variable in arguments", `{"command":"x","args":["${HOME}"]}`, "in the values of env and headers alone", false},
		{"a project's variable", `{"command":"x","env":{"A":"${HOME}"}}`, "only the personal mcp.json may use variables", true},
		{"a project's header", `{"url":"https://example.com/","headers":{"A":"${HOME}"}}`, "only the personal mcp.json may use variables", true},
		{"a NUL", `{"command":"x\u0000"}`, "has a NUL", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := mcp.Files{Personal: write(t, `{"mcpServers":{"s":`+tc.server+`}}`)}
			if tc.project {
				f.Project, f.Personal = f.Personal, ""
			}
			if got := problem(t, f); !strings.Contains(got, tc.want) || !strings.Contains(got, "mcp.json:1:") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	for name, content := range map[string]string{
		"has a name too much like":           `{"mcpServers":{"a b":{"command":"x"},"a_b":{"command":"x"}}}`,
		"a name of more than 32 bytes":       `{"mcpServers":{"` + strings.Repeat("n", 33) + `":{"command":"x"}}}`,
		"a name without a letter":            `{"mcpServers":{"…":{"command":"x"}}}`,
		`member "servers" is not known`:      `{"servers":{}}`,
		"has more than 32 servers":           `{"mcpServers":{` + many(33) + `}}`,
		"is larger than 1048576 bytes":       strings.Repeat(" ", 1<<20+1),
		"duplicate member":                   `{"mcpServers":{"s":{"command":"x"},"s":{"command":"y"}}}`,
		`member "mcpServers.s.args" must be`: `{"mcpServers":{"s":{"command":"x","args":"y"}}}`,
	} {
		if got := problem(t, mcp.Files{Personal: write(t, content)}); !strings.Contains(got, name) {
			t.Errorf("want %q, got %q", name, got)
		}
	}
	if got := problem(t, mcp.Files{Personal: os.DevNull}); !strings.Contains(got, "is not a regular file") {
		t.Errorf("a device: %q", got)
	}
}

// problem is what is wrong with the one file that f names.
func problem(t *testing.T, f mcp.Files) string {
	t.Helper()
	servers := mcp.Load(f)
	if len(servers) != 1 || servers[0].Project != (f.Project != "") {
		t.Fatalf("%+v", servers)
	}
	return servers[0].Problem
}

// blocked is a path that an agent may not read.
type blocked string

func (b blocked) OutOfBounds(path string) bool { return path == string(b) }

// TestLoadBroken keeps the servers of one file where the other is of no use; what is wrong is
// told as a server's failure.
func TestLoadBroken(t *testing.T) {
	personal, secret := write(t, `{"mcpServers":{"mine":{"command":"x"}}}`), write(t, `{"mcpServers":{"linked":{"command":"x"}}}`)
	type brokenCase struct {
		name, want string
		make       func(path string) error
	}
	tests := []brokenCase{
		{"no JSON", "mcp.json:1:2: ", func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) }},
		{"a pipe that nobody writes to", "mcp.json: is not a regular file", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"a directory", "mcp.json: is not a regular file", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a link out of the project", "mcp.json: path escapes from parent", func(path string) error { return os.Symlink(secret, path) }},
		{"a directory that is a link", "mcp.json: path escapes from parent", func(path string) error {
			dir := filepath.Dir(path)
			return errors.Join(os.Remove(dir), os.Symlink(filepath.Dir(secret), dir))
		}},
		{"a link to what the agent may not read", "mcp.json: leads to what is out of bounds for this agent", func(path string) error {
			return errors.Join(os.WriteFile(filepath.Join(filepath.Dir(path), "..", "blocked"), []byte(`{"mcpServers":{"linked":{"command":"x"}}}`), 0o600), os.Symlink("../blocked", path))
		}},
		{"a project that is a link by now", "mcp.json: is a symbolic link", func(path string) error {
			project := filepath.Dir(filepath.Dir(path))
			other := project + ".other"
			return errors.Join(os.MkdirAll(filepath.Join(other, ".nexus3"), 0o700), os.WriteFile(filepath.Join(other, ".nexus3", "mcp.json"), []byte(`{"mcpServers":{"linked":{"command":"x"}}}`), 0o600),
				os.RemoveAll(project), os.Symlink(other, project))
		}},
		{"too much", "mcp.json: is larger than 1048576 bytes", func(path string) error { return os.WriteFile(path, make([]byte, 1<<20+1), 0o600) }},
	}
	if os.Geteuid() == 0 { // only root can give files away
		tests = append(tests, brokenCase{"another user's", "mcp.json: belongs to another user", func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("{}"), 0o644), os.Chown(path, 12345, -1))
		}})
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), ".nexus3")
			path := filepath.Join(dir, "mcp.json")
			if err := errors.Join(os.Mkdir(dir, 0o700), tc.make(path)); err != nil {
				t.Fatal(err)
			}
			servers := mcp.Load(mcp.Files{Personal: personal, Project: path, Bounds: blocked(filepath.Join(filepath.Dir(dir), "blocked"))})
			if len(servers) != 2 || servers[0].Name != "mine" {
				t.Fatalf("%+v", servers)
			}
			m := manage(t, mcp.Options{Servers: servers[1:], Environment: environment{permit: func(mcp.Server) error { return errors.New("none may be used") }}})
			m.Prepare(t.Context())
			got := status(m)
			if got.Name != "project" || !got.Project || got.State != protocol.MCPFailed || !strings.HasPrefix(got.Error, path) || !strings.Contains(got.Error, tc.want) {
				t.Errorf("status %+v", got)
			}
			if len(m.Tools()) != 0 {
				t.Errorf("it has %d tools", len(m.Tools()))
			}
			if err := m.Connect(t.Context(), "project", ""); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("connect: %v", err)
			}
		})
	}
	pipe := filepath.Join(t.TempDir(), "mcp.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	servers := mcp.Load(mcp.Files{Personal: pipe, Project: personal})
	if len(servers) != 2 || servers[0].Name != "personal" || servers[0].Project || !strings.Contains(servers[0].Problem, "is not a regular file") ||
		servers[1].Name != "mine" || !servers[1].Project || servers[1].Problem != "" {
		t.Errorf("a personal file that is a pipe: %+v", servers)
	}
}

func many(n int) string {
	var entries []string
	for i := range n {
		entries = append(entries, `"s`+strings.Repeat("x", i%30)+string(rune('a'+i/30))+`":{"command":"x"}`)
	}
	return strings.Join(entries, ",")
}

// FuzzLoad checks that what is accepted makes servers with one way to be
// reached and names that tell them apart.
func FuzzLoad(f *testing.F) {
	f.Add(`{"mcpServers":{"a":{"command":"x","args":["y"],"env":{"K":"${V}"}},"b c":{"url":"https://h/","headers":{"A":"${V:-d}"}}}}`)
	f.Add(`{"mcpServers":{"a":{"command":"x","env":{"K":"${V"}}}}`)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		path := filepath.Join(dir, "mcp.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		servers := mcp.Load(mcp.Files{Personal: path, Environ: []string{"V=value"}})
		if len(servers) == 1 && servers[0].Problem != "" {
			return
		}
		m := mcp.New(mcp.Options{Servers: servers})
		defer m.Close(t.Context())
		for i, s := range servers {
			if (s.Command == "") == (s.URL == "") || s.Timeout <= 0 {
				t.Errorf("server %+v", s)
			}
			for _, other := range servers[:i] {
				if mcp.ToolName(s.Name, "t") == mcp.ToolName(other.Name, "t") {
					t.Errorf("%q and %q have one name", s.Name, other.Name)
				}
			}
		}
	})
}

// TestToolNames writes down what names become.
func TestToolNames(t *testing.T) {
	for _, tc := range []struct{ server, tool, want string }{
		{"github", "create_issue", "mcp_github_create_issue"},
		{"my server", "get-it", "mcp_my-server_get-it"},
		{"a_b", "c", "mcp_a-b_c"},
		{"s", "a.b", "mcp_s_a_b_2e7336dc"},
		{"s", "a b", "mcp_s_a_b_c8687a08"},
		{"s", "connect", "mcp_s_connect_5a638a12"},
		{"s", "", "mcp_s__e3b0c442"},
		{"s", strings.Repeat("l", 80), "mcp_s_" + strings.Repeat("l", 49) + "_25c79a6a"},
	} {
		if prefix := (mcp.Server{Name: tc.server}).ToolPrefix(); !strings.HasPrefix(tc.want, prefix) {
			t.Errorf("the tools of %q begin with %q, not so %q", tc.server, prefix, tc.want)
		}
		if got := mcp.ToolName(tc.server, tc.tool); got != tc.want || len(got) > 64 {
			t.Errorf("%q of %q is %q, want %q", tc.tool, tc.server, got, tc.want)
		}
	}
}
