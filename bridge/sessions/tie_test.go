//go:build unix

package sessions_test

import (
	"os"
	"strings"
	"testing"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// What an agent created is under it by its other name too, and with it what those
// created; else its budget and its end would be none of theirs any more.
func TestRenameKeepsTheTie(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	by := func(id string) transcript.Settings { return transcript.Settings{ParentAgentID: &id} }
	save(t, c, "boss", 1, transcript.Settings{})
	save(t, c, "kid", 1, by("boss"))
	save(t, c, "torn", 1, by("boss"))
	save(t, c, "grandkid", 1, by("kid"))
	save(t, c, "other", 1, by("somebody"))
	write(t, c.Path("damaged"), "{}\n")
	// An earlier boss's, older than this one.
	write(t, c.Path("older"), `{"type":"session","version":1,"session_id":"s","name":"older","created_at":"2001-01-01T00:00:00Z"}`+"\n"+
		`{"type":"settings","parent_agent_id":"boss","at":"2001-01-01T00:00:00Z"}`+"\n")
	f, err := os.OpenFile(c.Path("torn"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"type":"message","message":{"role":"us` + strings.Repeat("e", 100_000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if created, err := c.Created("boss"); err != nil || strings.Join(created, " ") != "kid torn" {
		t.Errorf("it created %v, %v", created, err)
	}
	if err := c.Rename("boss", "chief"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"kid": "chief", "torn": "chief", "grandkid": "kid", "other": "somebody", "older": "boss"} {
		if s, err := c.Summary(id); err != nil || protocol.Value(s.Settings.ParentAgentID) != want {
			t.Errorf("%s was created by %q (%v), want %q", id, protocol.Value(s.Settings.ParentAgentID), err, want)
		}
	}
	if s, err := c.Summary("torn"); err != nil || s.Messages != 1 {
		t.Errorf("the torn one: %+v, %v", s, err)
	}
}
