package sessions_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/sessions"
	"nexus.internal/fixtures"
	"nexus.internal/protocol/transcript"
)

var someID = regexp.MustCompile(`"session_id":"[0-9a-f-]{36}"`)

func TestImport(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	got, err := c.Import(fixtures.Read(t, "sessions/foreign.json"))
	if diff := cmp.Diff(sessions.Imported{Name: "my-project", Messages: 7, Preset: "trusted"}, got); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	data, err := os.ReadFile(c.Path("my-project"))
	if err != nil {
		t.Fatal(err)
	}
	fixtures.Golden(t, "sessions/imported.jsonl", someID.ReplaceAll(data, []byte(`"session_id":"UUID"`)))
	if _, err := c.Import(fixtures.Read(t, "sessions/foreign.json")); !errors.Is(err, sessions.ErrExists) {
		t.Errorf("imported again: %v", err)
	}
	// The directory is saved as a child would save it.
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Import([]byte(`{"agent_id":"linked","messages":[],"provenance":"boss","working_directory":"` + link + `"}`)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Summary("linked")
	if err != nil || s.Settings.Permissions.Preset != "sandboxed" ||
		*s.Settings.ParentAgentID != "boss" || *s.Settings.Depth != 1 {
		t.Errorf("%+v, %v", s.Settings, err)
	}
	if want, _ := filepath.EvalSymlinks(real); *s.Settings.Cwd != want {
		t.Errorf("cwd is %s, want %s", *s.Settings.Cwd, want)
	}
}

func TestImportRefuses(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	for _, tt := range []struct{ name, text, want string }{
		{"no JSON", `{"agent_id":`, ""},
		{"no object", `[]`, ""},
		{"no name", `{"messages":[]}`, "agent_id"},
		{"a name elsewhere", `{"agent_id":"../x","messages":[]}`, "agent_id"},
		{"a temporary name", `{"agent_id":".1","messages":[]}`, "agent_id"},
		{"a role's name", `{"agent_id":"planner","messages":[]}`, "planner is a reserved name"},
		{"the name of a role's agent", `{"agent_id":"maker","messages":[]}`, "maker is a reserved name"},
		{"no messages", `{"agent_id":"x"}`, "messages"},
		{"an unknown role", `{"agent_id":"x","messages":[{"role":"user"},{"role":"robot"}]}`, "messages[1].role"},
		{"a result of nothing", `{"agent_id":"x","messages":[{"role":"tool","content":"a","tool_call_id":"c"}]}`, "messages[0].tool_call_id"},
		{"a call without a name", `{"agent_id":"x","messages":[{"role":"assistant","tool_calls":[{"id":"c","name":"","arguments":{}}]}]}`, "messages[0].tool_calls[0]"},
		{"an unknown level", `{"agent_id":"x","messages":[],"permission_level":"root"}`, "permission_level"},
		{"a relative directory", `{"agent_id":"x","messages":[],"working_directory":"work"}`, "working_directory"},
		{"no time", `{"agent_id":"x","messages":[],"created_at":"yesterday"}`, "created_at"},
		{"an unknown maker", `{"agent_id":"x","messages":[],"provenance":"../boss"}`, "provenance"},
	} {
		if _, err := c.Import([]byte(tt.text), "maker"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want one about %s", tt.name, err, tt.want)
		}
	}
	if _, total, err := c.List(0, 10, true); total != 0 || err != nil {
		t.Errorf("%d sessions were saved, %v", total, err)
	}
}

// Whatever is imported is a sound session, with as many messages as were said
// and no turn open.
func FuzzImport(f *testing.F) {
	f.Add(fixtures.Read(f, "sessions/foreign.json"))
	f.Add([]byte(`{"agent_id":"x","messages":[{"role":"user"},{"role":"assistant","tool_calls":[{"id":"c","name":"n","arguments":[1,
		2]}]}],"created_at":"0000-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := sessions.New(t.TempDir(), nil)
		imported, err := c.Import(data)
		if err != nil {
			return
		}
		text, err := os.ReadFile(c.Path(imported.Name))
		if err != nil {
			t.Fatal(err)
		}
		state, good, err := transcript.Parse(bytes.NewReader(text))
		if err != nil || good != int64(len(text)) || uint64(len(state.Messages)) != imported.Messages {
			t.Fatalf("%d of %d bytes are sound, %v: %s", good, len(text), err, text)
		}
		if fix := state.Repair(begun); fix != nil {
			t.Fatalf("a turn is open: %s", text)
		}
	})
}
