package permission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nexus.internal/child/permission"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// What is not beyond a bound is decided no milder than by the bound, by the
// permissions and by the kernel, and what two permissions have in common is
// beyond neither.
func TestBeyondNamesAllThatIsLooser(t *testing.T) {
	within := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b, call := anyPermissions(t, "a"), anyPermissions(t, "b"), anyCall(t)
		for _, bound := range []protocol.Permissions{a, b} {
			if over := rights.Beyond(rights.Intersect(a, b), bound); over != nil {
				t.Errorf("the common part of\n%+v\n%+v\nis beyond one of them: %v", a, b, over)
			}
		}
		cwd, elsewhere := rapid.SampledFrom(somePaths).Draw(t, "cwd"), rapid.SampledFrom(somePaths).Draw(t, "cwd of the bound")
		if rapid.Bool().Draw(t, "narrowed") { // two at random are hardly ever one within the other
			a, cwd = rights.Intersect(a, b), elsewhere
		}
		of := permission.Policy{Permissions: a, Cwd: cwd}
		bound := permission.Policy{Permissions: b, Cwd: elsewhere}
		if rights.Beyond(of.Ceiling(), bound.Ceiling()) != nil {
			return
		}
		within++
		if call.Action == protocol.ActionExecute || len(call.Paths) == 0 {
			call.Paths = append(call.Paths, cwd)
		}
		call = confined(call, a)
		if got, most := of.Decide(call).Verdict, bound.Decide(call).Verdict; got < most {
			t.Errorf("%v where the bound says %v: %+v in %s, bound %+v in %s", got, most, a, cwd, b, elsewhere)
		}
		if of.Tool("shell", protocol.ActionExecute).Verdict == permission.Deny {
			return // no program runs
		}
		got, most := of.Sandbox("shell"), bound.Sandbox("shell")
		for _, path := range append(somePaths, "/a/b/c/x", "/z") {
			if may(got.ReadWrite, got.Blocked, path) && !may(most.ReadWrite, most.Blocked, path) ||
				may(got.ReadOnly, got.Blocked, path) && !may(most.ReadOnly, most.Blocked, path) {
				t.Errorf("%s: %+v, bound %+v", path, got, most)
			}
		}
		if over := furtherThan(got, most); over != "" {
			t.Errorf("%s is reached: %+v, bound %+v", over, got, most)
		}
		if got.Network && !most.Network {
			t.Errorf("network: %+v, bound %+v", got, most)
		}
	})
	if within == 0 {
		t.Error("nothing was within a bound: this shows nothing")
	}
}

func TestBeyond(t *testing.T) {
	bound := protocol.Permissions{
		Preset: "trusted", AllowedPaths: []string{"/lib", "/site"}, WritePaths: []string{"/site"}, BlockedPaths: []string{"/site/keys"},
		DisabledTools: []string{"shell"}, Tools: map[string]protocol.ToolRule{
			"write_file": {Mode: "ask"}, "mcp_mail": {Mode: "deny"}, "read_file": {AllowedPaths: []string{"/site"}, BlockedPaths: []string{"/site/b"}},
		},
	}
	with := func(change func(*protocol.Permissions)) protocol.Permissions {
		p := bound
		p.Tools = map[string]protocol.ToolRule{}
		for name, rule := range bound.Tools {
			p.Tools[name] = rule
		}
		change(&p)
		return p
	}
	for _, tt := range []struct {
		name   string
		change func(*protocol.Permissions)
		want   []string
	}{
		{"the same", func(*protocol.Permissions) {}, nil},
		{"less", func(p *protocol.Permissions) {
			p.Preset, p.AllowedPaths, p.WritePaths, p.DisabledTools = "sandboxed", []string{"/lib/a"}, []string{}, []string{"shell", "sleep"}
		}, nil},
		{"a preset", func(p *protocol.Permissions) { p.Preset = "yolo" }, []string{"the path /", "the preset yolo (at most trusted)"}},
		{"a path", func(p *protocol.Permissions) { p.AllowedPaths = []string{"/etc"} }, []string{"the path /etc"}},
		{"write paths taken away", func(p *protocol.Permissions) { p.WritePaths = nil }, []string{"changes elsewhere than in the write paths"}},
		{"a write path", func(p *protocol.Permissions) { p.WritePaths = []string{"/lib"} }, []string{"the write path /lib"}},
		{"what is blocked", func(p *protocol.Permissions) { p.BlockedPaths = nil }, []string{"the blocked path /site/keys"}},
		{"a disabled tool", func(p *protocol.Permissions) { p.DisabledTools = nil }, []string{"the tool shell"}},
		{"denied instead", func(p *protocol.Permissions) {
			p.DisabledTools, p.Tools["shell"] = nil, protocol.ToolRule{Mode: "deny"}
		}, nil},
		{"a rule taken away", func(p *protocol.Permissions) { p.Tools = nil }, []string{
			"for read_file the blocked path /site/b", "read_file outside of its paths", "the tool mcp_mail", "write_file without asking",
		}},
		{"a mode", func(p *protocol.Permissions) { p.Tools["mcp_docs"] = protocol.ToolRule{Mode: "allow"} }, []string{"mcp_docs without asking"}},
		{"a path of a tool", func(p *protocol.Permissions) {
			p.Tools["read_file"] = protocol.ToolRule{AllowedPaths: []string{"/lib"}, BlockedPaths: []string{"/site/b"}}
		}, []string{"for read_file the path /lib"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, rights.Beyond(with(tt.change), bound)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestBeyondAllowances(t *testing.T) {
	mine := []protocol.Allowance{
		{Tool: "write_file", Action: protocol.ActionWrite, Dir: "/out"}, {Tool: "shell", Action: protocol.ActionExecute, Dir: "/site", Programs: []string{"git", "make"}},
	}
	theirs := []protocol.Allowance{
		{Tool: "write_file", Action: protocol.ActionWrite, Dir: "/out/a"}, {Tool: "shell", Action: protocol.ActionExecute, Dir: "/site", Programs: []string{"make"}},
	}
	if over := rights.BeyondAllowances(theirs, mine); over != nil {
		t.Errorf("less is beyond: %v", over)
	}
	if got := rights.BeyondAllowances(append(theirs, protocol.Allowance{Tool: "mcp_mail", Action: protocol.ActionExternal}, protocol.Allowance{
		Tool: "shell", Action: protocol.ActionExecute, Dir: "/site", Programs: []string{"rm"},
	}), mine); len(got) != 2 {
		t.Errorf("got %v, want two", got)
	}
}
