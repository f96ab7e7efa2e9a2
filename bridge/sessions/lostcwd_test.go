//go:build unix

package sessions_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// A session whose directory is lost goes on in another one: its turn has ended, what it may do follows, and its model is told what is gone.
func TestLoseCwd(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	was := protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/srv/data"}, BlockedPaths: []string{"/srv/work/keys"}}
	ceiling := protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/srv"}}
	save(t, c, "worker", 0, transcript.Settings{
		Cwd: new("/srv/work"), Permissions: &was, Ceiling: &ceiling, Granted: &protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/srv/work"}},
		GrantedCwd: new("/srv"), CwdLost: new(protocol.CwdLostFresh),
	})
	inside, outside := protocol.Allowance{Tool: "bash", Action: protocol.ActionExecute, Dir: "/srv/work/sub"}, protocol.Allowance{Tool: "bash", Action: protocol.ActionExecute, Dir: "/srv/data"}
	var changed []string
	for i := range 60 {
		changed = append(changed, fmt.Sprintf("/srv/work/f%02d", i))
	}
	var lines []byte
	for _, r := range []transcript.Record{
		transcript.Allowance{Allowance: inside, At: begun},
		transcript.Allowance{Allowance: outside, At: begun},
		transcript.Message{Message: protocol.Message{Role: protocol.RoleUser, Content: "begin", TurnID: "1", At: begun}},
		transcript.Message{Message: protocol.Message{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{{ID: "a", Name: "t", Input: []byte(`{}`)}, {ID: "b", Name: "t", Input: []byte(`{}`)}}, At: begun}},
		transcript.Message{Message: protocol.Message{Role: protocol.RoleTool, ToolCallID: "a", Changed: append(changed, "/elsewhere/x"), At: begun}},
	} {
		var err error
		if lines, err = transcript.Append(lines, r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, '\n')
	}
	text, err := os.ReadFile(c.Path("worker"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, c.Path("worker"), string(text)+string(lines)+`{"type":"message","mess`)
	if err := sessions.LoseCwd(c, "worker", sessions.LostCwd{Node: "a", To: "/home/new", On: "b"}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(c.Path("worker"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, _, err := transcript.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	now := s.Settings
	if protocol.Value(now.Cwd) != "/home/new" || protocol.Value(now.GrantedCwd) != "/home/new" || now.LostCwd == nil || now.LostCwd.Cwd != "/srv/work" || now.LostCwd.Node != "a" || protocol.Value(now.CwdLost) != "fresh" || s.Open != nil {
		t.Errorf("it is %+v, with the turn %v", now, s.Open)
	}
	want := []protocol.Permissions{
		{Preset: "trusted", AllowedPaths: []string{"/srv/data"}, BlockedPaths: []string{"/home/new/keys"}},
		{Preset: "trusted", AllowedPaths: []string{"/home/new"}},
		{Preset: "trusted", AllowedPaths: []string{"/home/new"}},
	}
	if diff := cmp.Diff(want, []protocol.Permissions{*now.Permissions, *now.Ceiling, *now.Granted}); diff != "" {
		t.Errorf("what it may do: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]protocol.Allowance{outside}, s.Allowances); diff != "" {
		t.Errorf("what was allowed: -want +got:\n%s", diff)
	}
	last := s.Messages[len(s.Messages)-1]
	for _, word := range []string{"The machine a,", "/srv/work with it", "machine b, in /home/new", "/srv/work/f00, ", "/srv/work/f49, and 10 more."} {
		if !strings.Contains(last.Content, word) {
			t.Errorf("the model is not told %q, but %s", word, last.Content)
		}
	}
	if last.Role != protocol.RoleUser || last.Source != "nexus" || strings.Contains(last.Content, "elsewhere") || s.Messages[len(s.Messages)-2].ToolCallID != "b" {
		t.Errorf("it is told by %+v, after %+v", last, s.Messages[len(s.Messages)-2])
	}
	if err := sessions.LoseCwd(c, "nobody", sessions.LostCwd{To: "/home/new"}); !errors.Is(err, sessions.ErrNotFound) {
		t.Errorf("of nobody: %v", err)
	}
}
