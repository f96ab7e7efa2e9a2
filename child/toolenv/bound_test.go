package toolenv_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// Within what is held, a change only narrows; within what the owner granted, it goes
// back as far as that; the owner's own word moves the grant.
func TestBounds(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "trusted", BlockedPaths: []string{"/srv/keys"}, DisabledTools: []string{"shell"}})
	set := func(b protocol.Bound, p protocol.Permissions) func() error {
		return func() error { return s.SetPermissions(p, b) }
	}
	move := func(b protocol.Bound, dir string) func() error { return func() error { return s.SetCwd(dir, b) } }
	rules := func(preset string) protocol.Permissions {
		return protocol.Permissions{Preset: preset, BlockedPaths: []string{"/srv/keys"}, DisabledTools: []string{"shell"}}
	}
	with := func(change func(*protocol.Permissions)) protocol.Permissions {
		p := rules("sandboxed")
		change(&p)
		return p
	}
	if err := os.Mkdir(s.dir+"/sub", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name   string
		do     func() error
		beyond bool
	}{
		{"narrower", set(protocol.WithinHeld, rules("sandboxed")), false},
		{"the same again", set(protocol.WithinHeld, rules("sandboxed")), false},
		{"back to what it was", set(protocol.WithinHeld, rules("trusted")), true},
		{"without what is blocked", set(protocol.WithinHeld, with(func(p *protocol.Permissions) { p.BlockedPaths = nil })), true},
		{"without what is disabled", set(protocol.WithinHeld, with(func(p *protocol.Permissions) { p.DisabledTools = nil })), true},
		{"another path", set(protocol.WithinHeld, with(func(p *protocol.Permissions) { p.AllowedPaths = []string{s.outside} })), true},
		{"unasked", set(protocol.WithinHeld, with(func(p *protocol.Permissions) {
			p.Tools = map[string]protocol.ToolRule{"mcp_x": {Mode: "allow"}}
		})), true},
		{"unasked, once the tool is given back", set(protocol.WithinHeld, with(func(p *protocol.Permissions) {
			p.DisabledTools, p.Tools = []string{"shell", "web_fetch"}, map[string]protocol.ToolRule{"web_fetch": {Mode: "allow"}}
		})), true},
		{"the same of what the owner has disabled", set(protocol.WithinHeld, with(func(p *protocol.Permissions) {
			p.Tools = map[string]protocol.ToolRule{"shell": {Mode: "allow"}}
		})), true},
		{"the same, up to the grant", set(protocol.WithinGranted, with(func(p *protocol.Permissions) {
			p.Tools = map[string]protocol.ToolRule{"shell": {Mode: "allow"}}
		})), true},
		{"hosts, once a tool is given back", set(protocol.WithinGranted, with(func(p *protocol.Permissions) {
			p.DisabledTools, p.Network = []string{"job_start", "shell", "web_fetch"}, []string{"*.evil.test"}
		})), true},
		{"its own directory, which the owner may take back", set(protocol.WithinHeld, with(func(p *protocol.Permissions) { p.AllowedPaths = []string{s.dir} })), true},
		{"the same, up to the grant", set(protocol.WithinGranted, with(func(p *protocol.Permissions) { p.AllowedPaths = []string{s.dir + "/sub"} })), true},
		{"down", move(protocol.WithinHeld, s.dir+"/sub"), false},
		{"out", move(protocol.WithinHeld, s.outside), true},
		{"up", move(protocol.WithinHeld, filepath.Dir(s.dir)), true},
		{"what is disabled, asked for besides", set(protocol.WithinHeld, with(func(p *protocol.Permissions) {
			p.Tools = map[string]protocol.ToolRule{"shell": {Mode: "ask"}}
		})), false},
		{"and again", set(protocol.WithinHeld, with(func(p *protocol.Permissions) {
			p.Tools = map[string]protocol.ToolRule{"shell": {Mode: "ask"}}
		})), false},
		{"what was granted", set(protocol.WithinGranted, rules("trusted")), false},
		{"where it was granted", move(protocol.WithinGranted, s.dir), false},
		{"hosts without asking", set(protocol.WithinHeld, with(func(p *protocol.Permissions) { p.Network = []string{"a.test"} })), true},
		{"hosts without asking, as granted", set(protocol.WithinGranted, with(func(p *protocol.Permissions) { p.Network = []string{"a.test"} })), true},
		{"more than was granted", set(protocol.WithinGranted, protocol.Permissions{Preset: "trusted"}), true},
		{"outside of what was granted", move(protocol.WithinGranted, s.outside), true},
		{"the owner", set(protocol.WithinCeiling, protocol.Permissions{Preset: "sandboxed"}), false},
		{"what the owner took back", set(protocol.WithinGranted, rules("trusted")), true},
		{"the owner again", set(protocol.WithinCeiling, protocol.Permissions{Preset: "trusted"}), false},
		{"the owner moves it", move(protocol.WithinCeiling, s.outside), false},
		{"back where it was", move(protocol.WithinGranted, s.dir), true},
		{"a bound that there is not", set("none", rules("sandboxed")), false},
	} {
		before := s.Rights()
		err := step.do()
		_, beyond := errors.AsType[*toolenv.BeyondError](err)
		if want := step.beyond || step.name == "a bound that there is not"; beyond != step.beyond || (err != nil) != want {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(before.Permissions, s.Rights().Permissions); err != nil && (diff != "" || s.Rights().Cwd != before.Cwd) {
			t.Errorf("%s: it was refused and has changed something\n%s", step.name, diff)
		}
	}
}

// Of the directory and the allowed paths neither stands for the other: once the owner replaces one of them, nothing is
// left of it by what was changed within a bound before.
func TestBoundsOfTheDirectory(t *testing.T) {
	for _, b := range []protocol.Bound{protocol.WithinHeld, protocol.WithinGranted} {
		s := newSite(t, protocol.Permissions{Preset: "trusted"})
		sub := s.dir + "/sub"
		if err := os.Mkdir(sub, 0o777); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, err error) {
			t.Helper()
			if _, beyond := errors.AsType[*toolenv.BeyondError](err); !beyond {
				t.Errorf("within %s: %s: %v", b, what, err)
			}
		}
		allow := func(b protocol.Bound, paths ...string) error {
			return s.SetPermissions(protocol.Permissions{Preset: "trusted", AllowedPaths: append([]string{}, paths...)}, b)
		}
		for _, err := range []error{allow(protocol.WithinCeiling, s.outside), allow(b, s.outside), allow(b)} {
			if err != nil {
				t.Fatalf("within %s: what the owner allowed, and less: %v", b, err)
			}
		}
		refused("the directory among the allowed paths", allow(b, s.dir))
		refused("what lies in it", allow(b, sub))
		if err := allow(protocol.WithinCeiling, s.outside); err != nil {
			t.Fatal(err)
		}
		refused("to an allowed path", s.SetCwd(s.outside, b))
		if err := s.SetCwd(sub, b); err != nil {
			t.Errorf("within %s: down: %v", b, err)
		}
		if err := s.SetCwd(s.dir, b); (err == nil) != (b == protocol.WithinGranted) {
			t.Errorf("within %s: up again to where the owner had it work: %v", b, err)
		}
		if err := errors.Join(allow(protocol.WithinCeiling), s.SetCwd(sub, protocol.WithinCeiling)); err != nil {
			t.Fatal(err)
		}
		refused("where it worked before", allow(b, s.dir))
		refused("up to there", s.SetCwd(s.dir, b))
		if diff := cmp.Diff([]string{sub}, rights.AccessiblePaths(s.State().Ceiling)); diff != "" {
			t.Errorf("within %s: -want +reachable\n%s", b, diff)
		}
	}
}

// What an earlier version granted has the directory of then among its paths.
func TestGrantOfAnEarlierVersion(t *testing.T) {
	dir, lib := t.TempDir(), t.TempDir()
	sub := dir + "/sub"
	if err := os.Mkdir(sub, 0o777); err != nil {
		t.Fatal(err)
	}
	for version, cwd := range map[string]string{"earlier": "", "this": dir} {
		env, err := toolenv.Open(toolenv.Options{
			Cwd: sub, Permissions: protocol.Permissions{Preset: "sandboxed", AllowedPaths: []string{lib}}, Restored: true,
			Granted: &protocol.Permissions{Preset: "trusted", AllowedPaths: []string{dir, lib}}, GrantedCwd: cwd,
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{dir, lib}
		if cwd == "" {
			cwd, want = sub, []string{lib}
		}
		slices.Sort(want)
		if held := env.Rights(); held.GrantedCwd != cwd || !slices.Equal(held.Granted.AllowedPaths, want) || held.Granted.Preset != "trusted" {
			t.Errorf("of %s version: %+v", version, held)
		}
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The owner's word that could not be saved lowers the grant, also where the agent holds
// as little already; the next process is told so, and cannot go back beyond it.
func TestLowerGrant(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "trusted"})
	if err := s.SetPermissions(protocol.Permissions{Preset: "sandboxed"}, protocol.WithinHeld); err != nil {
		t.Fatal(err)
	}
	before := s.Rights()
	if err := s.SetPermissions(protocol.Permissions{Preset: "sandboxed"}, protocol.WithinCeiling); err != nil {
		t.Fatal(err)
	}
	if !s.Narrow(before) || s.Rights().Granted.Preset != "sandboxed" {
		t.Errorf("the grant is %+v, and nothing is said to be narrowed", s.Rights().Granted)
	}
	lowered := s.Rights().Granted
	s.Return(before)
	if err := s.LowerGrant(lowered); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Permissions, s.Permissions()); diff != "" {
		t.Errorf("what holds has changed (-want +got):\n%s", diff)
	}
	if err := s.LowerGrant(before.Granted); err != nil {
		t.Fatal(err)
	}
	err := s.SetPermissions(protocol.Permissions{Preset: "trusted"}, protocol.WithinGranted)
	if _, beyond := errors.AsType[*toolenv.BeyondError](err); !beyond {
		t.Errorf("back to what was granted before: %v", err)
	}
}

// Of a change that could not be saved what it takes away holds, and nothing that it
// gives.
func TestNarrowKeepsWhatIsTakenAway(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "trusted", BlockedPaths: []string{"/srv/keys"}})
	before := s.Rights()
	for _, tt := range []struct {
		asked, want protocol.Permissions
		narrowed    bool
	}{
		{protocol.Permissions{Preset: "yolo"}, before.Permissions, false},
		{protocol.Permissions{Preset: "sandboxed"}, protocol.Permissions{Preset: "sandboxed", BlockedPaths: []string{"/srv/keys"}}, true},
		{protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/opt"}, DisabledTools: []string{"shell"}}, protocol.Permissions{
			Preset: "sandboxed", BlockedPaths: []string{"/srv/keys"}, DisabledTools: []string{"shell"},
		}, true},
		{protocol.Permissions{Preset: "trusted"}, protocol.Permissions{
			Preset: "sandboxed", BlockedPaths: []string{"/srv/keys"}, DisabledTools: []string{"shell"},
		}, false},
	} {
		before := s.Rights()
		if err := s.SetPermissions(tt.asked, protocol.WithinCeiling); err != nil {
			t.Fatal(err)
		}
		if narrowed := s.Narrow(before); narrowed != tt.narrowed {
			t.Errorf("%+v: narrowed %t", tt.asked, narrowed)
		}
		if diff := cmp.Diff(tt.want, s.Permissions()); diff != "" {
			t.Errorf("%+v: -want +got\n%s", tt.asked, diff)
		}
	}
}
