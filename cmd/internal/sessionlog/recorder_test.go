package sessionlog_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/sessionlog"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// What each record and event of a session says is logged, once, without keys; the rest is not.
func TestWhatIsLogged(t *testing.T) {
	s := start(t, t.TempDir(), filepath.Join(t.TempDir(), "logs"), nil)
	a := s.begin("w", "")
	key := "nxk_" + strings.Repeat("k", 30)
	s.save("w",
		said(protocol.RoleUser, "what is \x1b[31mred?\u202e "+key),
		transcript.Partial{TurnID: "t", Text: "it"},
		transcript.Message{Message: protocol.Message{Role: protocol.RoleAssistant, Content: "look", Thinking: "hm", ToolCalls: []protocol.ToolCall{{ID: "1", Name: "shell", Input: []byte(`{"command":"x"}`)}, {ID: "2", Name: key, Input: []byte(`{}`)}}}},
		transcript.Message{Message: protocol.Message{Role: protocol.RoleTool, ToolName: "shell", Content: "```\nno\n```", IsError: true}},
		transcript.Settings{},
		transcript.Message{Message: protocol.Message{Role: protocol.RoleAssistant, Content: "a colour", Interrupted: true}},
		transcript.TurnEnd{TurnID: "t", Outcome: "failed", Error: "bad luck"},
		transcript.Undo{Kept: 2},
		transcript.Reset{SessionID: "next"},
	)
	s.append("w", []byte("{\"broken\n"))
	s.prompt(a, "t")
	s.append("w", []byte(`{"type":"partial","turn_id":"u","text":"cut off"}`+"\n"+`{"type":"partial","turn_id":"u","text":" in the m`)) // as a kill leaves it
	s.stop()
	want := []string{
		"user: what is \x1b[31mred?\u202e nxk_[redacted]",
		"thinking: hm", "assistant: look", `tool_call shell: {"command":"x"}`, "tool_call nxk_[redacted]: {}", "tool_error shell: ```\nno\n```",
		"assistant: a colour\n[interrupted]", "turn_end: failed: bad luck", "undo: only the first 2 messages are left", "new_session: next",
		"gap: a line of 9 bytes in the session cannot be read: ", "partial: cut off",
	}
	got := entries(t, s.logs, "w")
	for i := range got {
		if strings.HasPrefix(got[i], "gap: ") {
			got[i], _, _ = strings.Cut(got[i], "read: ")
			got[i] += "read: "
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	texts, err := filepath.Glob(filepath.Join(s.logs, "2026-01-02_030405_w_session-", "session.md"))
	if err != nil || len(texts) != 1 {
		t.Fatal(texts, err)
	}
	text, err := os.ReadFile(texts[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"# w\n\nSession `session-of-w`, begun 2026-01-02T03:04:05.000Z\n", "## user · 2026-01-02 03:04:06.000\n\n> what is \\u001b[31mred?\\u202e nxk_[redacted]\n",
		"**tool error shell** · ", "\n> ````\n> ```\n> no\n> ```\n> ````\n",
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("session.md lacks %q:\n%s", part, text)
		}
	}
	wantContiguous(t, seqs(t, s.logs), 4)
}

// What an agent did that was gone before the recorder looked is logged from what is on disk.
func TestGoneBeforeItWasSeen(t *testing.T) {
	s := startServer(t, t.TempDir(), filepath.Join(t.TempDir(), "logs"), nil)
	a := s.begin("w", "boss")
	s.save("w", transcript.Settings{ParentAgentID: new("boss")}, said(protocol.RoleUser, "quick"))
	s.prompt(a, "t")
	s.run("silent", "") // which has no session
	if err := errors.Join(s.sup.Remove(t.Context(), "w"), s.sup.Remove(t.Context(), "silent")); err != nil {
		t.Fatal(err)
	}
	s.record()
	s.until("it is logged", func() bool {
		return cmp.Equal(map[string]string{"w": "subagent saved boss"}, marks(t, s.logs))
	})
	b := s.run("w", "boss") // the same session goes on
	s.save("w", said(protocol.RoleUser, "again"))
	s.prompt(b, "u")
	s.stop()
	if diff := cmp.Diff([]string{"user: quick", "user: again"}, entries(t, s.logs, "w")); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	wantContiguous(t, seqs(t, s.logs), 8)
}

// A session is marked by what became of it, also after a kill.
func TestMarks(t *testing.T) {
	home, logs := t.TempDir(), filepath.Join(t.TempDir(), "logs")
	s := start(t, home, logs, nil)
	for _, id := range []string{"kept", "gone", ".1", ".2"} {
		s.begin(id, "")
	}
	s.begin("helper", "kept")
	s.run("silent", "") // it has no session
	want := map[string]string{"kept": "saved active", "gone": "saved active", ".1": "temp active", ".2": "temp active", "helper": "subagent active kept"}
	s.until("all are active", func() bool { return cmp.Equal(want, marks(t, logs)) })
	catalogue := sessions.New(home, nil)
	if err := catalogue.SetLast(".2"); err != nil { // it outlives its agent
		t.Fatal(err)
	}
	if err := errors.Join(s.sup.Remove(t.Context(), ".1"), os.Remove(catalogue.Path(".1")), s.sup.Remove(t.Context(), "helper")); err != nil {
		t.Fatal(err)
	}
	want[".1"], want["helper"] = "temp destroyed", "subagent saved kept"
	s.until("those whose agents are removed", func() bool { return cmp.Equal(want, marks(t, logs)) })
	s.stop()
	want["kept"], want["gone"], want[".2"] = "saved saved", "saved saved", "temp saved"
	if diff := cmp.Diff(want, marks(t, logs)); diff != "" {
		t.Errorf("at the end (-want +got):\n%s", diff)
	}
	if err := os.Remove(catalogue.Path("gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(catalogue.Path("helper"), catalogue.Path("friend")); err != nil {
		t.Fatal(err)
	}
	// As a kill leaves them.
	db, err := sql.Open("sqlite", filepath.Join(logs, "logs.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE sessions SET session_status = 'active' WHERE agent_id IN ('kept', '.1')"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	a, err := sessionlog.Open(logs)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Settle(t.Context(), home, catalogue, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	want["gone"], want[".1"], want["friend"] = "saved destroyed", "temp orphaned", want["helper"]
	delete(want, "helper")
	if diff := cmp.Diff(want, marks(t, logs)); diff != "" {
		t.Errorf("after a kill (-want +got):\n%s", diff)
	}

	// Only what is gone is removed, and nothing that is younger.
	if removed, err := a.Clean(t.Context(), begun, sessionlog.Filter{}, false); err != nil || len(removed) != 0 {
		t.Errorf("what is young: %v, %v", removed, err)
	}
	for _, dry := range []bool{true, false} {
		removed, err := a.Clean(t.Context(), begun.Add(time.Second), sessionlog.Filter{}, dry)
		var names []string
		for _, s := range removed {
			names = append(names, s.AgentID)
		}
		slices.Sort(names)
		if diff := cmp.Diff([]string{".1", "gone"}, names); err != nil || diff != "" {
			t.Errorf("%v, removed (-want +got):\n%s", err, diff)
		}
	}
	delete(want, "gone")
	delete(want, ".1")
	if diff := cmp.Diff(want, marks(t, logs)); diff != "" {
		t.Errorf("after that (-want +got):\n%s", diff)
	}
}

// A later server goes on where the one before stopped, whatever that left behind its last commit.
func TestGoesOn(t *testing.T) {
	home, logs := t.TempDir(), filepath.Join(t.TempDir(), "logs")
	var want []string
	for round := range 3 {
		s := start(t, home, logs, nil)
		var a *supervisor.Agent
		if round == 0 {
			a = s.begin("w", "")
		} else {
			a = s.run("w", "")
		}
		text := fmt.Sprintf("message %d", round)
		want = append(want, "user: "+text)
		s.save("w", said(protocol.RoleUser, text))
		s.prompt(a, fmt.Sprintf("t%d", round))
		s.stop()
		for _, name := range []string{"session.md", "events.jsonl"} {
			files, err := filepath.Glob(filepath.Join(logs, "*", name))
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			file, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = file.WriteString("what was not comm")
			}
			if err = errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := start(t, home, logs, nil)
	s.prompt(s.run("w", ""), "last")
	s.stop()
	if diff := cmp.Diff(want, entries(t, logs, "w")); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	wantContiguous(t, seqs(t, logs), 8)
	texts, _ := filepath.Glob(filepath.Join(logs, "*", "session.md"))
	if text, err := os.ReadFile(texts[0]); err != nil || strings.Count(string(text), "\n## user") != len(want) || strings.Contains(string(text), "not comm") {
		t.Errorf("%v, session.md:\n%s", err, text)
	}
}

// A server removes the logs of sessions that are gone when they are old, and no others.
func TestRetention(t *testing.T) {
	home, logs := t.TempDir(), filepath.Join(t.TempDir(), "logs")
	s := start(t, home, logs, nil)
	for _, id := range []string{".1", ".2", "w"} {
		a := s.begin(id, "")
		s.save(id, said(protocol.RoleUser, "zebra "+id+strings.Repeat(" okapi"+id[1:], len(id)-1)))
		s.prompt(a, "t"+id)
	}
	s.stop()
	db, err := sql.Open("sqlite", filepath.Join(logs, "logs.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE sessions SET updated_at = ? WHERE agent_id = '.2'", time.Now().UTC().Format(time.RFC3339)); err != nil {
		t.Fatal(err)
	}
	db.Close()
	s = start(t, home, logs, nil)
	s.until("what is old is removed", func() bool {
		return cmp.Equal(map[string]string{".2": "temp destroyed", "w": "saved saved"}, marks(t, logs))
	})
	if left, err := filepath.Glob(filepath.Join(logs, "*_*")); err != nil || len(left) != 2 {
		t.Errorf("folders: %v, %v", left, err)
	}
	found, err := s.archive.Search(t.Context(), []string{"zebra"}, sessionlog.Filter{}, 10)
	if err != nil || len(found) != 2 {
		t.Errorf("found %v, %v", found, err)
	}
	s.stop()
	text, err := os.ReadFile(filepath.Join(logs, "logs.db"))
	if err != nil || bytes.Contains(text, []byte("okapi1")) || !bytes.Contains(text, []byte("okapi2")) {
		t.Errorf("%v, or the database still has what was removed, or lacks what was not", err)
	}
}

// The time of a session's log is that of its last entry, also where it is logged later.
func TestTimeOfTheLastEntry(t *testing.T) {
	home, logs := t.TempDir(), filepath.Join(t.TempDir(), "logs")
	catalogue := sessions.New(home, nil)
	logged := func(when, want string) {
		t.Helper()
		a, err := sessionlog.Open(logs)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if err := a.Settle(t.Context(), home, catalogue, func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		if found, err := a.Find("w"); err != nil || found.UpdatedAt != want {
			t.Errorf("%s: %v, %v; want %s", when, found, err, want)
		}
	}
	s := start(t, home, logs, nil)
	s.begin("w", "")
	s.until("it is logged", func() bool { return marks(t, logs)["w"] == "saved active" })
	s.stop()
	logged("without an entry", "2026-01-02T03:04:05.000Z")
	s = start(t, home, logs, nil)
	a := s.run("w", "")
	s.save("w", said(protocol.RoleUser, "first"))
	s.prompt(a, "t")
	s.stop()
	logged("after a turn", "2026-01-02T03:04:06.000Z")
	s.save("w", transcript.TurnEnd{TurnID: "t", Outcome: "failed", At: begun.Add(time.Minute)}) // as a server that was killed left it
	logged("logged later", "2026-01-02T03:05:05.000Z")
	s.append("w", []byte("broken\n")) // which has no time
	if err := os.Chtimes(catalogue.Path("w"), time.Time{}, begun.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	logged("a line that cannot be read", "2026-01-02T04:04:05.000Z")
}

// Somebody who keeps the database busy holds up no agent, and nothing is lost: what is not kept in memory
// by then is read from the disk.
func TestFallsBehind(t *testing.T) {
	const deltas, size = 100, 64 << 10 // more than is kept for a subscriber
	plan := func(supervisor.Spec, int) supervisortest.Play {
		return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
			c.Emit(protocol.SessionUpdate{}) // for which the session is read
			for range deltas {
				c.Say(strings.Repeat("x", size))
			}
			c.Finish(p, "")
		}}
	}
	s := start(t, t.TempDir(), filepath.Join(t.TempDir(), "logs"), plan)
	a := s.begin("w", "")
	s.save("w", said(protocol.RoleUser, "first"))
	s.until("it is logged", func() bool { return marks(t, s.logs)["w"] == "saved active" })
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.logs, "logs.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.save("w", said(protocol.RoleUser, "second"))
	s.prompt(a, "t") // its events come while nothing can be logged: the subscription is lost, unless it reads from the disk already
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.stop()
	got := slices.DeleteFunc(entries(t, s.logs, "w"), func(e string) bool { return strings.HasPrefix(e, "gap: events ") }) // on a slow disk
	if diff := cmp.Diff([]string{"user: first", "user: second"}, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	wantContiguous(t, seqs(t, s.logs), deltas)
}
