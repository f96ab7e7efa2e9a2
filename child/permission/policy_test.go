package permission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"nexus.internal/child/permission"
	"nexus.internal/protocol"
)

// presets are those of a configuration.
var presets = map[string]protocol.Permissions{
	"reviewer": {
		Preset: "trusted", AllowedPaths: []string{"/lib"}, WritePaths: []string{"/site/notes", "/lib/notes"}, BlockedPaths: []string{"/site/secret"},
		DisabledTools: []string{"sleep"}, Tools: map[string]protocol.ToolRule{"shell": {Mode: "deny"}, "mcp_docs": {Mode: "allow"}},
	},
	"caged": {Preset: "sandboxed", Tools: map[string]protocol.ToolRule{
		"mcp_docs": {Mode: "allow"}, "nexus_send": {Mode: "ask"}, "read_file": {AllowedPaths: []string{"/site/src"}},
		"edit_file": {Mode: "ask", BlockedPaths: []string{"/site/src/gen"}},
	}},
	"online": {Preset: "sandboxed", Network: []string{"docs.test", "*.h.test:443", "[::1]:8080"}},
	"within": {Preset: "trusted", Network: []string{"docs.test"}},
	"alone":  {Preset: "yolo", Network: []string{}},
	"free":   {Preset: "yolo", BlockedPaths: []string{"/site/secret"}, Tools: map[string]protocol.ToolRule{"write_file": {Mode: "ask"}}},
}

// allowed are what somebody allowed for the session.
var allowed = []protocol.Allowance{
	{Tool: "write_file", Action: protocol.ActionWrite, Dir: "/out"},
	{Tool: "shell", Action: protocol.ActionExecute, Dir: "/site", Programs: []string{"git", "make"}},
	{Tool: "mcp_mail", Action: protocol.ActionExternal},
	{Tool: "web_fetch", Action: protocol.ActionFetch, Hosts: []string{"docs.test", "h:8080"}},
}

// actions are what the tools of the table do.
var actions = map[string]protocol.Action{
	"sleep": protocol.ActionNone, "read_file": protocol.ActionRead, "search_text": protocol.ActionRead, "list_directory": protocol.ActionRead, "write_file": protocol.ActionWrite,
	"edit_file": protocol.ActionWrite, "shell": protocol.ActionExecute, "nexus_send": protocol.ActionDelegate,
	"mcp_docs": protocol.ActionExternal, "mcp_mail": protocol.ActionExternal,
	"web_fetch": protocol.ActionFetch,
}

// TestDecide is a document of what the presets decide. A call is a tool and a
// path, or programs; the working directory is /site. "+" before a preset stands
// for what was allowed for the session.
func TestDecide(t *testing.T) {
	for _, tt := range []struct{ preset, call, want string }{
		{"yolo", "read_file /etc/passwd", "allow"},
		{"yolo", "write_file /etc/passwd", "allow"},
		{"yolo", "shell rm", "allow"},
		{"yolo", "nexus_send", "allow"},
		{"yolo", "mcp_docs", "allow"},
		{"yolo", "web_fetch docs.test", "allow"},

		{"trusted", "sleep", "allow"},
		{"trusted", "read_file /site/a", "allow"},
		{"trusted", "write_file /site/a", "allow"},
		{"trusted", "read_file /siteshop", "ask: /siteshop is outside the working directory /site"},
		{"trusted", "write_file /", "ask: / is outside the working directory /site"},
		{"yolo", "read_file /proc/1/environ", "allow"},
		{"trusted", "read_file /proc/1/environ", "deny: /proc/1/environ is out of bounds: it belongs to a process"},
		{"trusted", "read_file /proc/self", "deny: /proc/self is out of bounds: it belongs to a process"},
		{"trusted", "read_file /proc/meminfo", "ask: /proc/meminfo is outside the working directory /site"},
		{"trusted", "read_file /proc", "ask: /proc is outside the working directory /site"},
		{"trusted", "shell ls", "ask: the preset trusted asks before programs are run"},
		{"trusted", "nexus_send", "allow"},
		{"trusted", "mcp_docs", "ask: the preset trusted asks before a tool of somebody else's is used"},
		{"trusted", "web_fetch docs.test", "ask: the preset trusted asks before a page of the network is fetched"},
		{"+trusted", "web_fetch docs.test", "allow"},
		{"+trusted", "web_fetch h:8080", "allow"},
		{"+trusted", "web_fetch h", "ask: the preset trusted asks before a page of the network is fetched"},
		{"+trusted", "web_fetch www.docs.test", "ask: the preset trusted asks before a page of the network is fetched"},
		{"+trusted", "web_fetch", "ask: the preset trusted asks before a page of the network is fetched"},
		{"+trusted", "write_file /out/a/b", "allow"},
		{"+trusted", "write_file /outer", "ask: /outer is outside the working directory /site"},
		{"+trusted", "read_file /out/a", "ask: /out/a is outside the working directory /site"},
		{"+trusted", "edit_file /out/a", "ask: /out/a is outside the working directory /site"},
		{"+trusted", "shell make", "allow"},
		{"+trusted", "shell make git", "allow"},
		{"+trusted", "shell make rm", "ask: the preset trusted asks before programs are run"},
		{"+trusted", "shell", "ask: the preset trusted asks before programs are run"},
		{"+trusted", "mcp_mail", "allow"},
		{"+trusted", "mcp_docs", "ask: the preset trusted asks before a tool of somebody else's is used"},

		{"sandboxed", "sleep", "allow"},
		{"sandboxed", "read_file /site", "allow"},
		{"sandboxed", "write_file /site/a", "allow"},
		{"sandboxed", "read_file /etc/passwd", "deny: /etc/passwd is outside the working directory /site"},
		{"sandboxed", "shell rm", "allow"},
		{"sandboxed", "nexus_send", "deny: the preset sandboxed does not allow nexus_send: it could reach beyond the working directory"},
		{"sandboxed", "mcp_docs", "deny: the preset sandboxed does not allow mcp_docs: it could reach beyond the working directory"},
		{"+sandboxed", "web_fetch docs.test", "deny: the preset sandboxed does not allow web_fetch: it has no network"},
		{"+sandboxed", "write_file /out/a", "deny: /out/a is outside the working directory /site"},
		{"+sandboxed", "mcp_mail", "deny: the preset sandboxed does not allow mcp_mail: it could reach beyond the working directory"},

		{"reviewer", "read_file /lib/a", "allow"},
		{"reviewer", "write_file /lib/a", "deny: /lib/a may not be changed, only what is in /lib/notes, /site/notes"},
		{"reviewer", "write_file /lib/notes/a", "allow"},
		{"reviewer", "write_file /site/a", "deny: /site/a may not be changed, only what is in /lib/notes, /site/notes"},
		{"reviewer", "read_file /site/secret/a", "deny: /site/secret/a is out of bounds for this agent"},
		{"reviewer", "read_file /site/secrets", "allow"},
		{"reviewer", "read_file /etc/passwd", "ask: /etc/passwd is outside the working directory /site and the allowed paths /lib"},
		{"reviewer", "sleep", "deny: sleep is disabled for this agent"},
		{"reviewer", "shell ls", "deny: the rules of this agent deny shell"},
		{"+reviewer", "shell make", "deny: the rules of this agent deny shell"},
		{"reviewer", "mcp_docs", "allow"},

		{"caged", "mcp_docs", "allow"},
		{"caged", "nexus_send", "deny: the preset sandboxed does not allow nexus_send: it could reach beyond the working directory"},
		{"caged", "read_file /site/src/a", "allow"},
		{"caged", "read_file /site/a", "deny: /site/a is outside of what read_file may touch: /site/src"},
		{"caged", "search_text /site/a", "allow"},
		{"caged", "edit_file /site/src/a", "ask: the rules of this agent ask before edit_file is used"},
		{"caged", "edit_file /site/src/gen/a", "deny: /site/src/gen/a is out of bounds for edit_file"},

		{"sandboxed", "web_fetch docs.test", "deny: the preset sandboxed does not allow web_fetch: it has no network"},
		{"online", "web_fetch docs.test", "allow"},
		{"online", "web_fetch docs.test:80", "allow"},
		{"online", "web_fetch Docs.test.", "allow"},
		{"online", "web_fetch docs.test:8080", "deny: docs.test:8080 is not among the hosts that this agent's permissions name (network)"},
		{"online", "web_fetch a.h.test", "allow"},
		{"online", "web_fetch a.h.test:80", "deny: a.h.test:80 is not among the hosts that this agent's permissions name (network)"},
		{"online", "web_fetch h.test", "deny: h.test is not among the hosts that this agent's permissions name (network)"},
		{"online", "web_fetch [::1]:8080", "allow"},
		{"online", "web_fetch docs.test@evil.test", "deny: docs.test@evil.test is not among the hosts that this agent's permissions name (network)"},
		{"within", "web_fetch docs.test", "ask: the preset trusted asks before a page of the network is fetched"},
		{"within", "web_fetch other.test", "deny: other.test is not among the hosts that this agent's permissions name (network)"},
		{"alone", "web_fetch docs.test", "deny: docs.test is not among the hosts that this agent's permissions name (network)"},

		{"free", "read_file /etc/passwd", "allow"},
		{"free", "read_file /site/secret", "deny: /site/secret is out of bounds for this agent"},
		{"free", "write_file /out/a", "ask: the rules of this agent ask before write_file is used"},
		{"+free", "write_file /out/a", "allow"},
	} {
		t.Run(tt.preset+" "+tt.call, func(t *testing.T) {
			preset, plus := strings.CutPrefix(tt.preset, "+")
			held, err := permission.Resolve(protocol.Permissions{Preset: preset}, presets)
			if err != nil {
				t.Fatal(err)
			}
			p := permission.Policy{Permissions: held, Cwd: "/site"}
			if plus {
				p.Allowances = allowed
			}
			words := strings.Fields(tt.call)
			call := permission.Call{Tool: words[0], Action: actions[words[0]], Plain: true}
			switch call.Action {
			case protocol.ActionExecute:
				call.Paths, call.Programs = []string{"/site"}, words[1:]
			case protocol.ActionFetch:
				call.Hosts = words[1:]
			default:
				call.Paths = words[1:]
			}
			if got := said(p.Decide(call)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func said(d permission.Decision) string {
	if d.Reason == "" {
		return d.Verdict.String()
	}
	return fmt.Sprintf("%v: %s", d.Verdict, d.Reason)
}

// What only looks runs unasked under trusted, unless a rule says otherwise.
func TestLooking(t *testing.T) {
	for _, tt := range []struct {
		preset, mode string
		looks        bool
		want         permission.Verdict
	}{
		{"trusted", "", true, permission.Allow},
		{"trusted", "ask", false, permission.Ask},
		{"trusted", "deny", false, permission.Deny},
		{"trusted", "allow", false, permission.Allow},
		{"yolo", "", false, permission.Allow},
		{"sandboxed", "", false, permission.Allow},
	} {
		p := permission.Policy{Cwd: "/site", Permissions: protocol.Permissions{
			Preset: tt.preset, Tools: map[string]protocol.ToolRule{"shell": {Mode: tt.mode}},
		}}
		call := permission.Call{Tool: "shell", Action: protocol.ActionExecute, Programs: []string{"ls"}, ReadOnly: true}
		if d := p.Decide(call); d.Verdict != tt.want || p.AllowedAsReadOnly(call) != tt.looks {
			t.Errorf("%s, mode %q: %v, looks %t", tt.preset, tt.mode, d, p.AllowedAsReadOnly(call))
		}
	}
}

// What is granted is as narrow as the call: the table's last column is what of
// it is allowed afterwards. What is said of it is of the same.
func TestGrant(t *testing.T) {
	isDir := func(path string) bool {
		return strings.HasSuffix(path, "dir") || slices.Contains([]string{"/", "/home", "/home/me", "/home/other", "/u", "/u/me", "/u/other"}, path)
	}
	for _, tt := range []struct{ name, call, want, says, after, not string }{
		{"a file: its directory", "write_file /out/a", "[{write_file write /out false [] []}]", "write_file: all in /out and below", "write_file /out/b", "read_file /out/b"},
		{"a directory: itself", "search_text /out/dir", "[{search_text read /out/dir false [] []}]", "search_text: all in /out/dir and below", "search_text /out/dir/a", "search_text /out"},
		{"a file beside what holds the work: itself", "read_file /home/me/.profile", "[{read_file read /home/me/.profile true [] []}]", "read_file: only /home/me/.profile", "read_file /home/me/.profile", "read_file /home/me/.ssh"},
		{"a file of the home, which becomes a directory", "read_file /u/me/later", "[{read_file read /u/me/later true [] []}]", "read_file: only /u/me/later", "read_file /u/me/later", "read_file /u/me/later/a"},
		{"what is there no more than a name to search", "search_text /u/me/later", "[]", "", "", ""},
		{"a file at the top: itself", "write_file /a", "[{write_file write /a true [] []}]", "write_file: only /a", "write_file /a", "write_file /b"},
		{"a file of the home, which the work is not in: itself", "read_file /u/me/notes", "[{read_file read /u/me/notes true [] []}]", "read_file: only /u/me/notes", "read_file /u/me/notes", "read_file /u/me/.ssh/id"},
		{"the top", "list_directory /", "[]", "", "", ""},
		{"what holds the work", "list_directory /home/me", "[]", "", "", ""},
		{"the home", "list_directory /u/me", "[]", "", "", ""},
		{"a home beside the home", "list_directory /u/other", "[]", "", "", ""},
		{"what homes lie in", "list_directory /u", "[]", "", "", ""},
		{"where homes are", "list_directory /home", "[]", "", "", ""},
		{"another's home there", "search_text /home/other", "[]", "", "", ""},
		{"a file of another's home", "write_file /home/other/a", "[{write_file write /home/other/a true [] []}]", "write_file: only /home/other/a", "write_file /home/other/a", "write_file /home/other/b"},
		{"a file of a hidden directory of the home: itself", "read_file /u/me/.ssh/config", "[{read_file read /u/me/.ssh/config true [] []}]", "read_file: only /u/me/.ssh/config", "read_file /u/me/.ssh/config", "read_file /u/me/.ssh/id"},
		{"the same of another's home", "write_file /home/other/.ssh/config", "[{write_file write /home/other/.ssh/config true [] []}]", "write_file: only /home/other/.ssh/config", "write_file /home/other/.ssh/config", "write_file /home/other/.ssh/id"},
		{"a hidden directory of the home", "list_directory /u/me/.dir", "[]", "", "", ""},
		{"a file deeper down there: its directory", "read_file /u/me/.config/app/a", "[{read_file read /u/me/.config/app false [] []}]", "read_file: all in /u/me/.config/app and below", "read_file /u/me/.config/app/b", "read_file /u/me/.config/b"},
		{"a hidden directory elsewhere: the directory", "read_file /out/.git/config", "[{read_file read /out/.git false [] []}]", "read_file: all in /out/.git and below", "read_file /out/.git/HEAD", "read_file /out/a"},
		{"a directory in the home: itself", "search_text /u/me/dir", "[{search_text read /u/me/dir false [] []}]", "search_text: all in /u/me/dir and below", "search_text /u/me/dir/a", "search_text /u/me"},
		{"programs: these, here", "shell mkdir touch", "[{shell execute /home/me/site false [mkdir touch] []}]", "shell, job_start: commands of nothing but mkdir, touch, in /home/me/site and below, that name nothing elsewhere", "shell mkdir", "shell mkdir rm"},
		{"programs, but not where they could run others", "shell mkdir", "[{shell execute /home/me/site false [mkdir] []}]", "shell, job_start: commands of nothing but mkdir, in /home/me/site and below, that name nothing elsewhere", "shell mkdir", "launch mkdir"},
		{"a program that could run others", "launch make", "[]", "", "", ""},
		{"nor is nothing", "shell", "[]", "", "", ""},
		{"another's tool: the tool", "mcp_docs", "[{mcp_docs external  false [] []}]", "mcp_docs: every call, whatever its input", "mcp_docs", "mcp_mail"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := permission.Policy{Cwd: "/home/me/site", Homes: []string{"/u/me"}, Permissions: protocol.Permissions{Preset: "trusted"}}
			call := func(text string) permission.Call {
				words := strings.Fields(text)
				c := permission.Call{Tool: words[0], Action: actions[words[0]], Paths: words[1:], Plain: true}
				if words[0] == "launch" {
					c.Tool, c.Action, c.Plain = "shell", protocol.ActionExecute, false
				}
				if c.Action == protocol.ActionExecute {
					c.Paths, c.Programs = []string{p.Cwd}, words[1:]
				}
				return c
			}
			if d := p.Decide(call(tt.call)); d.Verdict != permission.Ask {
				t.Errorf("before: %v", d)
			}
			var also []string
			if strings.HasPrefix(tt.call, "shell") {
				also = []string{"job_start"}
			}
			session := p.Grant(call(tt.call), also, isDir)
			p.Allowances = session.Allowances
			if session.Covers != tt.says {
				t.Errorf("said %q, want %q", session.Covers, tt.says)
			}
			if got := fmt.Sprint(p.Allowances); got != tt.want {
				t.Fatalf("granted %s, want %s", got, tt.want)
			}
			if tt.after == "" {
				return
			}
			for _, text := range []string{tt.call, tt.after} {
				if d := p.Decide(call(text)); d.Verdict != permission.Allow {
					t.Errorf("%s: %v", text, d)
				}
			}
			if d := p.Decide(call(tt.not)); d.Verdict != permission.Ask {
				t.Errorf("%s: %v", tt.not, d)
			}
		})
	}
}

// A project's file may name another MCP server by the same name later: a yes is for the one that it named, and none of an earlier version holds.
func TestOneProjectsServer(t *testing.T) {
	p := permission.Policy{Cwd: "/work", Permissions: protocol.Permissions{Preset: "trusted"}}
	at := func(targets ...string) permission.Call {
		return permission.Call{Tool: "mcp_a_connect", Action: protocol.ActionExternal, Programs: targets}
	}
	p.Allowances = []protocol.Allowance{{Tool: "mcp_a_connect", Action: protocol.ActionExternal}}
	if d := p.Decide(at("https://a.example")); d.Verdict != permission.Ask {
		t.Errorf("a yes to whatever is connected: %v", d)
	}
	p.Allowances = p.Grant(at("https://a.example"), nil, nil).Allowances
	for target, want := range map[string]permission.Verdict{"https://a.example": permission.Allow, "https://b.example": permission.Ask} {
		if d := p.Decide(at(target)); d.Verdict != want {
			t.Errorf("%s: %v", target, d)
		}
	}
	if d := p.Decide(at()); d.Verdict != permission.Ask {
		t.Errorf("a server of the user's of that name: %v", d)
	}
}

// What is told of a yes for the session is told of all that is recorded, in plain words that no name can make; what
// takes too long to tell is not offered.
func TestWhatIsSaidOfAGrant(t *testing.T) {
	p := permission.Policy{Cwd: "/work", Permissions: protocol.Permissions{Preset: "trusted"}}
	long := "/" + strings.Repeat("x", 700)
	for _, tt := range []struct {
		name string
		call permission.Call
		want string
	}{
		{"two directories", permission.Call{Tool: "move_file", Action: protocol.ActionWrite, Paths: []string{"/out/a", "/work/a"}}, "move_file: all in /out and below; all in /work and below"},
		{"one directory, named once", permission.Call{Tool: "move_file", Action: protocol.ActionWrite, Paths: []string{"/out/a", "/out/b"}}, "move_file: all in /out and below"},
		{"names that say other things", permission.Call{Tool: "read_file", Action: protocol.ActionRead, Paths: []string{"/out; only /x/a", "/a\x1b[2K\u202e/b"}}, `read_file: all in "/out; only /x" and below; all in "/a\x1b[2K\u202e" and below`},
		{"a name in other letters", permission.Call{Tool: "read_file", Action: protocol.ActionRead, Paths: []string{"/größe/日本/a"}}, "read_file: all in /größe/日本 and below"},
		{"a tool of somebody else's", permission.Call{Tool: "mcp_a: all\n", Action: protocol.ActionExternal}, `"mcp_a: all\n": every call, whatever its input`},
		{"a project's MCP server", permission.Call{Tool: "mcp_a_connect", Action: protocol.ActionExternal, Programs: []string{"https://a.example/mcp"}}, "mcp_a_connect: every call that reaches https://a.example/mcp"},
		{"hosts", permission.Call{Tool: "web_fetch", Action: protocol.ActionFetch, Hosts: []string{"example.com", "[::1]:80"}}, "web_fetch: all pages of example.com, [::1]:80"},
		{"a host that is none", permission.Call{Tool: "web_fetch", Action: protocol.ActionFetch, Hosts: []string{"a, b"}}, `web_fetch: all pages of "a, b"`},
		{"no host", permission.Call{Tool: "web_fetch", Action: protocol.ActionFetch}, ""},
		{"other agents", permission.Call{Tool: "nexus_send", Action: protocol.ActionDelegate}, "nexus_send: every call, whatever its input"},
		{"what writes files", permission.Call{Tool: "shell", Action: protocol.ActionExecute, Plain: true, Programs: []string{"sort", ">"}}, "shell: commands of nothing but > (writing files), sort, in /work and below, that name nothing elsewhere"},
		{"what is long", permission.Call{Tool: "apply_patch", Action: protocol.ActionWrite, Paths: []string{long + "/1/a", long + "/2/a"}}, "apply_patch: all in " + long + "/1 and below; all in " + long + "/2 and below"},
		{"what is too long", permission.Call{Tool: "apply_patch", Action: protocol.ActionWrite, Paths: []string{long + "/1/a", long + "/2/a", long + "/3/a"}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := p.Grant(tt.call, nil, func(string) bool { return false })
			if s.Covers != tt.want || (s.Allowances == nil) != (tt.want == "") {
				t.Errorf("granted %v and said %q, want %q", s.Allowances, s.Covers, tt.want)
			}
		})
	}
}

// What an earlier version saved for all of a hidden directory of a home ends; what it saved for a file there stays.
func TestNarrow(t *testing.T) {
	p := permission.Policy{Cwd: "/work", Homes: []string{"/u/me"}}
	of := func(dir string) protocol.Allowance {
		return protocol.Allowance{Tool: "read_file", Action: protocol.ActionRead, Dir: dir}
	}
	all := []protocol.Allowance{of("/u/me"), of("/u/me/.ssh"), of("/u/me/.profile"), of("/u/me/.config/app"), of("/out/.git")}
	got := p.Narrow(all, func(path string) bool { return path != "/u/me/.profile" })
	if want := all[2:]; !slices.EqualFunc(got, want, protocol.Allowance.Equal) {
		t.Errorf("left are %v, want %v", got, want)
	}
}

func ExamplePolicy_Decide() {
	policy := permission.Policy{Permissions: protocol.Permissions{Preset: "trusted"}, Cwd: "/home/me/project"}
	for _, path := range []string{"/home/me/project/main.go", "/etc/hosts"} {
		d := policy.Decide(permission.Call{Tool: "write_file", Action: protocol.ActionWrite, Paths: []string{path}})
		fmt.Println(said(d))
	}
	// Output:
	// allow
	// ask: /etc/hosts is outside the working directory /home/me/project
}
