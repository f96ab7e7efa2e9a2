package permission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nexus.internal/child/permission"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// The pieces that random permissions and calls are made of.
var (
	somePaths = []string{"/", "/a", "/a/b", "/a/b/c", "/ab", "/d", "/d/e"}
	someHosts = []string{"a.test", "a.test:8080", "*.test", "b.a.test", "*.a.test:443", "10.0.0.1:80"}
	someTools = []string{"read_file", "write_file", "shell", "nexus_send", "mcp_docs", "sleep"}
)

func anyPaths(t *rapid.T, label string) []string {
	if rapid.Bool().Draw(t, label+" is nil") {
		return nil
	}
	return rapid.SliceOfN(rapid.SampledFrom(somePaths), 0, 3).Draw(t, label)
}

func anyPermissions(t *rapid.T, label string) protocol.Permissions {
	p := protocol.Permissions{
		Preset:        rapid.SampledFrom([]string{"yolo", "trusted", "sandboxed"}).Draw(t, label+" preset"),
		DisabledTools: rapid.SliceOfN(rapid.SampledFrom(someTools), 0, 2).Draw(t, label+" disabled"),
		AllowedPaths:  anyPaths(t, label+" allowed"), WritePaths: anyPaths(t, label+" write"), BlockedPaths: anyPaths(t, label+" blocked"),
		Tools: map[string]protocol.ToolRule{},
	}
	if rapid.Bool().Draw(t, label+" names hosts") {
		p.Network = rapid.SliceOfN(rapid.SampledFrom(someHosts), 0, 3).Draw(t, label+" hosts")
	}
	for _, tool := range rapid.SliceOfNDistinct(rapid.SampledFrom(someTools), 0, 3, rapid.ID).Draw(t, label+" rules") {
		p.Tools[tool] = protocol.ToolRule{
			Mode:         rapid.SampledFrom([]string{"", "allow", "ask", "deny"}).Draw(t, label+" mode of "+tool),
			AllowedPaths: anyPaths(t, label+" allowed of "+tool), BlockedPaths: anyPaths(t, label+" blocked of "+tool),
		}
	}
	resolved, err := permission.Resolve(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

func anyCall(t *rapid.T) permission.Call {
	tool := rapid.SampledFrom(someTools).Draw(t, "tool")
	return permission.Call{
		Tool: tool, Action: actions[tool], Paths: rapid.SliceOfN(rapid.SampledFrom(append(somePaths, "/a/b/c/x", "/z")), 0, 2).Draw(t, "paths"),
		Programs: []string{"make"}, ReadOnly: rapid.Bool().Draw(t, "looking"),
	}
}

// confined is how a call compares with one under sandboxed, which runs programs
// unasked because they are confined: as one that only looks.
func confined(call permission.Call, met protocol.Permissions) permission.Call {
	call.ReadOnly = call.ReadOnly || met.Preset == "sandboxed" && call.Action == protocol.ActionExecute
	return call
}

// Whatever is asked for, under a ceiling nothing is looser than either.
func TestMeetIsNeverLooser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, call := anyPermissions(t, "a"), anyPermissions(t, "b"), anyCall(t)
		cwd := rapid.SampledFrom(somePaths).Draw(t, "cwd")
		verdict := func(p protocol.Permissions) permission.Verdict {
			return permission.Policy{Permissions: p, Cwd: cwd}.Decide(call).Verdict
		}
		met := rights.Intersect(a, b)
		call = confined(call, met)
		if got := verdict(met); got < verdict(a) || got < verdict(b) {
			t.Errorf("%v where a says %v and b %v; met %+v", got, verdict(a), verdict(b), met)
		}
		if diff := cmp.Diff(met, rights.Intersect(b, a)); diff != "" {
			t.Errorf("the order counts: -ab +ba\n%s", diff)
		}
		if diff := cmp.Diff(met, rights.Intersect(met, b)); diff != "" {
			t.Errorf("a ceiling that is met again changes something: -once +twice\n%s", diff)
		}
		if again, err := permission.Resolve(met, nil); err != nil || !cmp.Equal(again, met) {
			t.Errorf("what is met is not what would be saved: %v, %s", err, cmp.Diff(met, again))
		}
		if over := rights.Excess(met, met); over != nil {
			t.Errorf("what is met exceeds itself: %v", over)
		}
	})
}

// The programs that tools start are not let further by the kernel than either
// side lets them.
func TestSandboxIsNeverLooser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyPermissions(t, "a"), anyPermissions(t, "b")
		cwd := rapid.SampledFrom(somePaths).Draw(t, "cwd")
		of := func(p protocol.Permissions) permission.Sandbox {
			return permission.Policy{Permissions: p, Cwd: cwd}.Sandbox("shell")
		}
		met := of(rights.Intersect(a, b))
		for _, side := range []permission.Sandbox{of(a), of(b)} {
			for _, path := range append(somePaths, "/a/b/c/x", "/z") {
				if may(met.ReadWrite, met.Blocked, path) && !may(side.ReadWrite, side.Blocked, path) {
					t.Errorf("%s can be changed: met %+v, side %+v", path, met, side)
				}
				if may(met.ReadOnly, met.Blocked, path) && !may(side.ReadOnly, side.Blocked, path) {
					t.Errorf("%s can be read: met %+v, side %+v", path, met, side)
				}
			}
			if over := furtherThan(met, side); over != "" {
				t.Errorf("%s is reached: met %+v, side %+v", over, met, side)
			}
			if met.Network && !side.Network || side.Bounded && !met.Bounded {
				t.Errorf("met %+v, side %+v", met, side)
			}
		}
	})
}

// furtherThan is a connection that programs may make under s and not under bound; "" if there
// is none among some.
func furtherThan(s, bound permission.Sandbox) string {
	reaches := func(s permission.Sandbox, host string, port uint16) bool {
		return s.Network || slices.ContainsFunc(s.Hosts, func(text string) bool {
			h, err := rights.ParseHost(text)
			return err == nil && h.Covers(host, port)
		})
	}
	for _, host := range []string{"a.test", "b.a.test", "c.b.a.test", "10.0.0.1", "test"} {
		for _, port := range []uint16{80, 443, 8080} {
			if reaches(s, host, port) && !reaches(bound, host, port) {
				return fmt.Sprint(host, ":", port)
			}
		}
	}
	return ""
}

func may(granted, blocked []string, path string) bool {
	in := func(dirs []string) bool {
		for _, dir := range dirs {
			if dir == path || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
				return true
			}
		}
		return false
	}
	return in(granted) && !in(blocked)
}

// What an agent hands on is no more than it has, wherever the other one works.
func TestHandingOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		held, asked, call := anyPermissions(t, "held"), anyPermissions(t, "asked"), anyCall(t)
		parent := permission.Policy{Permissions: held, Cwd: rapid.SampledFrom(somePaths).Draw(t, "cwd")}
		cwd := rapid.SampledFrom(somePaths).Draw(t, "cwd of the other")
		if rights.CheckCwd(parent.Ceiling(), cwd) != nil {
			return
		}
		if call.Action == protocol.ActionExecute || len(call.Paths) == 0 {
			call.Paths = append(call.Paths, cwd)
		}
		child := permission.Policy{Permissions: rights.Intersect(asked, parent.Ceiling()), Cwd: cwd}
		call = confined(call, child.Permissions)
		if got, want := child.Decide(call), parent.Decide(call); got.Verdict < want.Verdict {
			t.Errorf("the other may %v what is %v here", got, want)
		}
	})
}

func TestExcess(t *testing.T) {
	ceiling := protocol.Permissions{
		Preset: "trusted", AllowedPaths: []string{"/lib"}, WritePaths: []string{"/site"}, DisabledTools: []string{"sleep"},
		Tools: map[string]protocol.ToolRule{"mcp_docs": {Mode: "allow"}},
	}
	for _, tt := range []struct {
		name  string
		asked protocol.Permissions
		want  string
	}{
		{"less", protocol.Permissions{Preset: "sandboxed", AllowedPaths: []string{"/lib/go"}}, "[]"},
		{"what the ceiling takes away is not asked for", protocol.Permissions{Preset: "trusted"}, "[]"},
		{"a rule that the ceiling has", protocol.Permissions{Preset: "trusted", Tools: map[string]protocol.ToolRule{"mcp_docs": {Mode: "allow"}}}, "[]"},
		{"a preset", protocol.Permissions{Preset: "yolo"}, "[the preset yolo (at most trusted)]"},
		{"paths", protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/etc", "/lib"}, WritePaths: []string{"/lib"}}, "[the allowed path /etc the write path /lib]"},
		{"hosts", protocol.Permissions{Preset: "trusted", Network: []string{"a.test"}}, "[]"},
		{"a rule", protocol.Permissions{Preset: "trusted", Tools: map[string]protocol.ToolRule{"shell": {Mode: "allow"}}}, "[the mode allow of shell]"},
	} {
		if got := fmt.Sprint(rights.Excess(tt.asked, rights.Intersect(tt.asked, ceiling))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestResolve(t *testing.T) {
	for _, tt := range []struct {
		name  string
		asked protocol.Permissions
		want  string // of the error
	}{
		{"nothing", protocol.Permissions{}, ""},
		{"a preset of the configuration", protocol.Permissions{Preset: "reviewer"}, ""},
		{"no preset", protocol.Permissions{Preset: "root"}, `unknown preset "root", want one of yolo, trusted, sandboxed, alone, caged, free, online, reviewer, within`},
		{"a relative path", protocol.Permissions{WritePaths: []string{"/a", "b"}}, `member "write_paths[1]" is "b", want an absolute path`},
		{"a NUL", protocol.Permissions{BlockedPaths: []string{"/a\x00"}}, `member "blocked_paths[0]" holds a NUL`},
		{"a mode", protocol.Permissions{Tools: map[string]protocol.ToolRule{"shell": {Mode: "maybe"}}}, `member "tools.shell.mode" is "maybe", want allow, ask or deny`},
		{"a host", protocol.Permissions{Network: []string{"a.test", "b_.test:x"}}, `member "network[1]" is "b_.test:x", want a host as`},
		{"an address of the web", protocol.Permissions{Network: []string{"https://a.test"}}, `member "network[0]" is "https://a.test", want a host as`},
		{"a rule's path", protocol.Permissions{Tools: map[string]protocol.ToolRule{"shell": {AllowedPaths: []string{"."}}}}, `member "tools.shell.allowed_paths[0]" is ".", want an absolute path`},
		{"too many", protocol.Permissions{AllowedPaths: make([]string, 257)}, `member "allowed_paths`},
	} {
		_, err := permission.Resolve(tt.asked, presets)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	got, err := permission.Resolve(protocol.Permissions{
		Preset: "reviewer", AllowedPaths: []string{"/data/"}, WritePaths: []string{"/site"}, DisabledTools: []string{"glob"},
		Tools: map[string]protocol.ToolRule{"shell": {Mode: "ask"}},
	}, presets)
	want := protocol.Permissions{
		Preset: "trusted", AllowedPaths: []string{"/data", "/lib"}, WritePaths: []string{"/site/notes"}, BlockedPaths: []string{"/site/secret"},
		DisabledTools: []string{"glob", "sleep"}, Tools: map[string]protocol.ToolRule{"shell": {Mode: "ask"}, "mcp_docs": {Mode: "allow"}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// A working directory is bound by the ceiling's paths, and under sandboxed by
// where the agent is.
func TestDirectories(t *testing.T) {
	for _, tt := range []struct {
		preset, allowed, dir string
		ceiling, move        bool // it may
	}{
		{"sandboxed", "", "/site/sub", true, true},
		{"sandboxed", "", "/etc", true, false},
		{"sandboxed", "/lib", "/lib/a", true, true},
		{"sandboxed", "/lib", "/etc", false, false},
		{"trusted", "", "/etc", true, true},
		{"trusted", "/lib", "/etc", false, true},
		{"yolo", "/lib", "/etc", true, true},
	} {
		p := permission.Policy{Cwd: "/site", Permissions: protocol.Permissions{Preset: tt.preset}}
		if tt.allowed != "" {
			p.Permissions.AllowedPaths = []string{tt.allowed}
		}
		if err := rights.CheckCwd(p.Permissions, tt.dir); (err == nil) != tt.ceiling {
			t.Errorf("%+v: as a ceiling: %v", tt, err)
		}
		if err := p.CheckMove(tt.dir); (err == nil) != tt.move {
			t.Errorf("%+v: move: %v", tt, err)
		}
	}
}
