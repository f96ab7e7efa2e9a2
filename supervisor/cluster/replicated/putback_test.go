package replicated_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/supervisor/cluster/clustertest"
)

// A machine whose disk, or a part of it, was put back to an earlier state goes on with what was acknowledged since, which the others have. What it has beyond that
// stays, and so does the end of a name that was being given up.
func TestDiskIsPutBack(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	replace := func(what string) func(t *testing.T, home, copied string) {
		return func(t *testing.T, home, copied string) {
			t.Helper()
			if err := errors.Join(os.RemoveAll(filepath.Join(home, what)), os.CopyFS(filepath.Join(home, what), os.DirFS(filepath.Join(copied, what)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for agent, tt := range map[string]struct {
		before bool // of the copy, the agent is there
		change func(t *testing.T, home, copied string)
		leaves bool
		said   string
		past   string
	}{
		"whole":     {true, replace("."), false, "one two", "one completed, two completed"},
		"sessions":  {true, replace("sessions"), false, "one two", "one completed, two completed"},
		"earlier":   {false, replace("sessions"), false, "one two", "one completed, two completed"},
		"untouched": {true, func(*testing.T, string, string) {}, false, "one two three", "one completed, two completed"},
		"leaves":    {false, replace("sessions"), true, "", ""},
		"stays":     {true, func(*testing.T, string, string) {}, true, "one two three", "one completed, two completed"},
	} {
		home, copied := t.TempDir(), t.TempDir()
		m := start(t, farm[0], home, shared+"/work")
		take := func() {
			for _, part := range []string{"sessions", "cluster/laid"} {
				if err := os.CopyFS(filepath.Join(copied, part), os.DirFS(filepath.Join(home, part))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.MkdirAll(m.path(""), 0o700); err != nil {
			t.Fatal(err)
		}
		if !tt.before {
			take()
		}
		m.claim(agent)
		r := m.open(agent, true)
		m.turn(r, agent, "one")
		if tt.before {
			take()
		}
		m.turn(r, agent, "two")
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if tt.leaves {
			if err := m.Leave(agent); err != nil {
				t.Fatal(err)
			}
		}
		m.stop()
		m.says(agent, "three") // nobody was told of it, and nothing shipped
		tt.change(t, home, copied)
		m = start(t, farm[0], home, shared+"/work")
		if err := m.Prepare(within(t), agent); err != nil {
			t.Errorf("%s: %v", agent, err)
		}
		if got := m.said(agent); got != tt.said {
			t.Errorf("%s: it has said %q, want %q", agent, got, tt.said)
		}
		if tt.past != "" {
			if got := past(m.open(agent, false)); got != tt.past {
				t.Errorf("%s: recorded are %s, want %s", agent, got, tt.past)
			}
		}
		m.stop()
	}
}
