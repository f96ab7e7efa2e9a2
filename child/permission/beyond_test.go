package permission_test

import (
	"maps"
	"slices"
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

// What does not widen a bound is no looser than the bound either once single members of both are replaced by the same, whatever they are; and
// neither are a bound itself and what two have in common, so that they may be set again.
func TestWidensNamesWhatWaits(t *testing.T) {
	within := 0
	rapid.Check(t, func(t *rapid.T) {
		a, bound, other := anyPermissions(t, "a"), anyPermissions(t, "bound"), anyPermissions(t, "other")
		if rapid.Bool().Draw(t, "narrowed") {
			a = rights.Intersect(a, bound)
			if over := rights.Widens(a, bound); over != nil {
				t.Fatalf("the common part %+v widens %+v: %v", a, bound, over)
			}
			a.DisabledTools = append(a.DisabledTools, other.DisabledTools...)
			for tool, rule := range other.Tools {
				if rapid.Bool().Draw(t, "waits") {
					a.Tools = map[string]protocol.ToolRule{tool: rule}
				}
			}
		}
		if over := rights.Widens(bound, bound); over != nil {
			t.Fatalf("%+v widens itself: %v", bound, over)
		}
		if rights.Widens(a, bound) != nil {
			return
		}
		within++
		// The owner gives hosts to what is sandboxed, or takes back that tools are allowed: that is its own word on both.
		for name, replace := range map[string]func(*protocol.Permissions){
			"disabled_tools":    func(p *protocol.Permissions) { p.DisabledTools = other.DisabledTools },
			"no disabled_tools": func(p *protocol.Permissions) { p.DisabledTools = nil },
			"allowed_paths":     func(p *protocol.Permissions) { p.AllowedPaths = other.AllowedPaths },
			"write_paths":       func(p *protocol.Permissions) { p.WritePaths = other.WritePaths },
			"blocked_paths":     func(p *protocol.Permissions) { p.BlockedPaths = other.BlockedPaths },
			"no blocked_paths":  func(p *protocol.Permissions) { p.BlockedPaths = nil },
			"tools":             func(p *protocol.Permissions) { p.Tools = other.Tools },
		} {
			if name == "tools" && a.Preset == "sandboxed" && bound.Preset == "trusted" && len(a.Network) > 0 {
				continue
			}
			p, most := a, bound
			replace(&p)
			replace(&most)
			if over := rights.Beyond(p, most); over != nil {
				t.Errorf("%+v\nin the place of\n%+v\nwith other %s: %v", a, bound, name, over)
			}
		}
	})
	if within == 0 {
		t.Error("nothing was within a bound: this shows nothing")
	}
}

// A rule for a tool that is disabled waits for the tool; what is denied by another member is denied only as long as that is there.
func TestWidens(t *testing.T) {
	bound := protocol.Permissions{
		Preset: "trusted", DisabledTools: []string{"glob"}, BlockedPaths: []string{"/keys"}, Tools: map[string]protocol.ToolRule{
			"glob": {Mode: "allow"}, "sleep": {Mode: "deny"}, "read_file": {BlockedPaths: []string{"/b"}}, "grep": {Mode: "ask", AllowedPaths: []string{"/a"}},
		},
	}
	for _, tt := range []struct {
		name   string
		change func(*protocol.Permissions)
		want   []string
	}{
		{"the same, with a rule for what is disabled", func(*protocol.Permissions) {}, nil},
		{"less", func(p *protocol.Permissions) {
			p.DisabledTools = append(p.DisabledTools, "shell", "sleep")
			p.Tools["shell"] = protocol.ToolRule{Mode: "ask", AllowedPaths: []string{"/a"}}
		}, nil},
		{"denied and disabled", func(p *protocol.Permissions) {
			p.DisabledTools, p.Tools["shell"] = append(p.DisabledTools, "shell"), protocol.ToolRule{Mode: "deny"}
		}, nil},
		{"a rule that waits", func(p *protocol.Permissions) {
			p.DisabledTools, p.Tools["shell"] = append(p.DisabledTools, "shell"), protocol.ToolRule{Mode: "allow"}
		}, []string{"shell without asking"}},
		{"hosts that wait", func(p *protocol.Permissions) {
			p.Preset, p.Network, p.DisabledTools = "sandboxed", []string{"a.test"}, append(p.DisabledTools, "job_start", "shell", "web_fetch")
		}, []string{"the network of a.test without asking"}},
		{"hosts that wait, as these tools are denied", func(p *protocol.Permissions) {
			p.Preset, p.Network = "sandboxed", []string{"a.test"}
			p.Tools["shell"], p.Tools["web_fetch"] = protocol.ToolRule{Mode: "deny"}, protocol.ToolRule{Mode: "deny"}
		}, []string{"the network of a.test without asking"}},
		{"paths of a tool that wait", func(p *protocol.Permissions) {
			p.DisabledTools, p.Tools["grep"] = append(p.DisabledTools, "grep"), protocol.ToolRule{Mode: "ask", AllowedPaths: []string{"/a", "/c"}}
		}, []string{"for grep the path /c"}},
		{"a rule that is gone, for a tool that is disabled", func(p *protocol.Permissions) {
			p.DisabledTools = append(p.DisabledTools, "grep")
			delete(p.Tools, "grep")
		}, []string{"grep outside of its paths", "grep without asking"}},
		{"denied instead of disabled", func(p *protocol.Permissions) {
			p.DisabledTools, p.Tools["glob"] = nil, protocol.ToolRule{Mode: "deny"}
		}, []string{"the tool glob"}},
		{"disabled instead of denied", func(p *protocol.Permissions) {
			p.DisabledTools = append(p.DisabledTools, "sleep")
			delete(p.Tools, "sleep")
		}, []string{"the tool sleep"}},
		{"blocked for all tools instead of one", func(p *protocol.Permissions) {
			p.BlockedPaths = append(p.BlockedPaths, "/b")
			delete(p.Tools, "read_file")
		}, []string{"for read_file the blocked path /b"}},
	} {
		p := bound
		p.DisabledTools, p.BlockedPaths, p.Tools = slices.Clone(bound.DisabledTools), slices.Clone(bound.BlockedPaths), maps.Clone(bound.Tools)
		tt.change(&p)
		if diff := cmp.Diff(tt.want, rights.Widens(p, bound)); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, diff)
		}
	}
	if over := rights.Beyond(protocol.Permissions{Preset: "trusted", DisabledTools: []string{"shell"}, Tools: map[string]protocol.ToolRule{"shell": {Mode: "allow"}}},
		protocol.Permissions{Preset: "trusted"}); over != nil {
		t.Errorf("two agents are compared by what each may do now: %v", over)
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
	alone := []protocol.Allowance{{Tool: "write_file", Action: protocol.ActionWrite, Dir: "/out/a", Alone: true}}
	if over := rights.BeyondAllowances(alone, mine); over != nil {
		t.Errorf("a file alone is beyond its directory: %v", over)
	}
	if got := rights.BeyondAllowances(theirs[:1], alone); len(got) != 1 {
		t.Errorf("what is below a file is not beyond the file alone: %v", got)
	}
	if got := rights.BeyondAllowances(append(theirs, protocol.Allowance{Tool: "mcp_mail", Action: protocol.ActionExternal}, protocol.Allowance{
		Tool: "shell", Action: protocol.ActionExecute, Dir: "/site", Programs: []string{"rm"},
	}), mine); len(got) != 2 {
		t.Errorf("got %v, want two", got)
	}
}
