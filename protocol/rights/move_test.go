package rights_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

func TestMoved(t *testing.T) {
	before := protocol.Permissions{
		Preset: "trusted", AllowedPaths: []string{"/other", "/srv", "/srv/work/src", "/srv/work2"}, WritePaths: []string{},
		BlockedPaths: []string{"/srv/work/secret", "/var"},
		Tools: map[string]protocol.ToolRule{
			"bash": {Mode: "ask", AllowedPaths: []string{"/srv/work"}, BlockedPaths: []string{"/srv/work/x", "/srv"}}, "grep": {},
		},
	}
	want := protocol.Permissions{
		Preset: "trusted", AllowedPaths: []string{"/home/new", "/home/new/src", "/other", "/srv/work2"}, WritePaths: []string{},
		BlockedPaths: []string{"/home/new/secret", "/var"},
		Tools: map[string]protocol.ToolRule{
			"bash": {Mode: "ask", AllowedPaths: []string{"/home/new"}, BlockedPaths: []string{"/home/new/x", "/srv"}}, "grep": {},
		},
	}
	if diff := cmp.Diff(want, rights.Moved(before, "/srv/work", "/home/new")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if before.AllowedPaths[1] != "/srv" || before.Tools["bash"].AllowedPaths[0] != "/srv/work" {
		t.Errorf("what was given has changed: %v", before)
	}
	if got := rights.Moved(protocol.Permissions{AllowedPaths: []string{"/"}}, "/srv/work", "/home/new"); got.AllowedPaths[0] != "/home/new" || got.WritePaths != nil || got.Tools != nil {
		t.Errorf("of the root is left %v", got)
	}
}
