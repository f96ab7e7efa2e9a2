package journal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"nexus.internal/child/journal"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(writesOn); dir != "" {
		writeOn(dir)
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, o journal.Options) (*journal.Journal, *transcript.State) {
	t.Helper()
	j, state, err := journal.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, state
}

func message(role protocol.Role, text string) transcript.Message {
	return transcript.Message{Message: protocol.Message{Role: role, Content: text, TurnID: "1", At: time.Unix(1, 0).UTC()}}
}

var turnEnd = transcript.TurnEnd{TurnID: "1", Outcome: "completed", At: time.Unix(2, 0).UTC()}

func contents(s *transcript.State) string {
	var all []string
	for _, m := range s.Messages {
		text := m.Content
		if m.Interrupted {
			text += " (interrupted)"
		}
		all = append(all, text)
	}
	return strings.Join(all, " | ")
}

func TestSaveAndContinue(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	j, state := open(t, journal.Options{Dir: dir, Name: "alice"})
	id := state.SessionID
	if err := j.Append(message(protocol.RoleUser, "hello"), message(protocol.RoleAssistant, "hi"), turnEnd); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Sync(), j.Close()); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []struct {
		path string
		want os.FileMode
	}{{dir, 0o700}, {filepath.Join(dir, "alice.jsonl"), 0o600}} {
		if info, err := os.Stat(mode.path); err != nil || info.Mode().Perm() != mode.want {
			t.Errorf("%s: mode %v, %v, want %v", mode.path, info.Mode(), err, mode.want)
		}
	}
	for _, o := range []journal.Options{{Name: "alice"}, {Continue: "alice"}, {Continue: id}} {
		o.Dir = dir
		j, state := open(t, o)
		if contents(state) != "hello | hi" || state.SessionID != id || state.Header.Name != "alice" {
			t.Errorf("%+v: got %q, session %s", o, contents(state), state.SessionID)
		}
		j.Close()
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", ".1", "worker-1", "A.b_c-9", strings.Repeat("x", 63)} {
		if err := journal.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a..b", "-a", "._a", "a/b", "a b", "é", "a\x00", "[", strings.Repeat("x", 64)} {
		if journal.CheckName(name) == nil {
			t.Errorf("%q names a session", name)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	held, _ := open(t, journal.Options{Dir: dir, Name: "held"})
	header := `{"type":"session","version":1,"session_id":"x","created_at":"2026-01-02T03:04:05Z"}` + "\n"
	write := func(name, data string) {
		if err := os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damaged := header + "{]\n" + `{"type":"reset","session_id":"y","at":"2026-01-02T03:04:05Z"}` + "\n"
	write("damaged", damaged)
	write("later", strings.Replace(header, `"version":1`, `"version":7`, 1))
	tests := []struct {
		name string
		o    journal.Options
		want string
	}{
		{"an unknown session", journal.Options{Continue: "nobody"}, "no such session"},
		{"a path for a name", journal.Options{Continue: "../held"}, "no such session"},
		{"a path to begin", journal.Options{Name: "../x"}, "no session name"},
		{"dots in a name", journal.Options{Name: "a..b"}, "no session name"},
		{"one that is in use", journal.Options{Name: "held"}, "in use by another process"},
		{"a damaged one", journal.Options{Name: "damaged"}, "line 2"},
		{"one of a later version", journal.Options{Continue: "later"}, "layout version 7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Dir = dir
			_, _, err := journal.Open(tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "damaged.jsonl")); string(data) != damaged {
		t.Error("the damaged file was changed")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, journal.Options{Dir: dir, Continue: "held"})
}

// A process may be killed at any byte of a write.
func TestEveryTornTailIsCutOff(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
	if err := j.Append(message(protocol.RoleUser, "hello"), message(protocol.RoleAssistant, "hi"), turnEnd); err != nil {
		t.Fatal(err)
	}
	j.Close()
	path := filepath.Join(dir, "s.jsonl")
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	torn := `{"type":"turn_end","turn_id":"2"}`
	for n := range len(torn) {
		if err := os.WriteFile(path, []byte(string(sound)+torn[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		j, state := open(t, journal.Options{Dir: dir, Continue: "s"})
		if j.Torn() != int64(n) || contents(state) != "hello | hi" {
			t.Fatalf("torn after %d bytes: cut off %d, left %q", n, j.Torn(), contents(state))
		}
		j.Close()
		if data, _ := os.ReadFile(path); string(data) != string(sound) {
			t.Fatalf("torn after %d bytes: the file is %q", n, data)
		}
	}
}

// The last line may lack its newline after somebody edited the file.
func TestMissingNewlineIsAdded(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
	j.Close()
	path := filepath.Join(dir, "s.jsonl")
	data, _ := os.ReadFile(path)
	if err := os.WriteFile(path, data[:len(data)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	j, _ = open(t, journal.Options{Dir: dir, Name: "s"})
	if err := j.Append(message(protocol.RoleUser, "hello"), turnEnd); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if _, state := open(t, journal.Options{Dir: dir, Name: "s"}); contents(state) != "hello" {
		t.Errorf("got %q", contents(state))
	}
}

func TestPartialText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
		read := func() string {
			data, err := os.ReadFile(filepath.Join(dir, "s.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		if err := j.Append(message(protocol.RoleUser, "hello")); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Millisecond)
		j.Partial("1", "slow ", "")
		if !strings.Contains(read(), `{"type":"partial","turn_id":"1","text":"slow "}`) {
			t.Errorf("a piece that comes alone waits:\n%s", read())
		}
		pass(10 * time.Millisecond)
		j.Partial("1", "one ", "")
		j.Partial("1", "two ", "hm")
		if strings.Contains(read(), "one") {
			t.Error("each piece is written for itself")
		}
		pass(10 * time.Millisecond)
		if want := `{"type":"partial","turn_id":"1","text":"one two ","thinking":"hm"}`; !strings.Contains(read(), want) {
			t.Errorf("20 ms after the last write the file lacks %s:\n%s", want, read())
		}
		j.Partial("1", strings.Repeat("x", 4096), "")
		if !strings.Contains(read(), "xxxx") {
			t.Error("4 KiB wait")
		}
		j.Partial("1", "dropped", "")
		if err := j.Append(message(protocol.RoleAssistant, "one two"), turnEnd); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(read(), "dropped") {
			t.Error("pieces are written beside the whole message")
		}
		j.Close()
		if _, state := open(t, journal.Options{Dir: dir, Name: "s"}); contents(state) != "hello | one two" {
			t.Errorf("got %q", contents(state))
		}
	})
}

// What is left to the next Append is written with it, by one write, whatever pieces came
// before; a piece of the next turn does not wait longer because a timer runs already.
func TestAppendLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
		defer j.Close()
		size := func() int64 {
			info, err := os.Stat(filepath.Join(dir, "s.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		for range 3 { // turns that follow each other closely
			if err := j.Append(message(protocol.RoleUser, "hello")); err != nil {
				t.Fatal(err)
			}
			<-time.After(5 * time.Millisecond)
			before := size()
			j.Partial("1", "hi", "")
			if err := j.AppendLater(message(protocol.RoleAssistant, "hi")); err != nil || size() != before {
				t.Errorf("%v, %d bytes are written, want none", err, size()-before)
			}
			if err := j.Append(turnEnd); err != nil || size() == before {
				t.Errorf("%v, nothing is written", err)
			}
		}
		before := size() // 10 ms after the timer was set
		j.Partial("2", "late", "")
		<-time.After(19 * time.Millisecond)
		synctest.Wait()
		if size() != before {
			t.Error("a piece is written sooner than 20 ms after the last write")
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
		if size() == before {
			t.Error("a piece waits for longer than 20 ms after the last write")
		}
		j.Close()
		if _, state := open(t, journal.Options{Dir: dir, Name: "s"}); contents(state) != "hello | hi | hello | hi | hello | hi" {
			t.Errorf("got %q", contents(state))
		}
	})
}

// A flood of pieces is written 50 times a second, and at every moment the file
// lacks only those of the last 20 ms.
func TestAFloodOfPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
		if err := j.Append(message(protocol.RoleUser, "hello")); err != nil {
			t.Fatal(err)
		}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := range 1000 {
			<-tick.C
			synctest.Wait()
			j.Partial("1", "x", "")
			data, err := os.ReadFile(filepath.Join(dir, "s.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			state, _, err := transcript.Parse(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			written := 0
			if repaired := state.Repair(time.Now()); len(repaired) > 1 {
				written = len(repaired[0].(transcript.Message).Message.Content)
			}
			if lines := strings.Count(string(data), "partial"); written < i+1-20 || lines > i/20+1 {
				t.Fatalf("after %d ms %d pieces are written, in %d lines", i+1, written, lines)
			}
		}
	})
}

func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
	j.Break(10, syscall.ENOSPC)
	if err := j.Append(message(protocol.RoleUser, "hello")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want %v", err, syscall.ENOSPC)
	}
	if err := j.Writable(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writable: got %v, want %v", err, syscall.ENOSPC)
	}
	j.Break(0, nil)
	if err := j.Writable(); err != nil {
		t.Errorf("writable with room again: %v", err)
	}
	if err := j.Append(message(protocol.RoleAssistant, "hi"), turnEnd); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if _, state := open(t, journal.Options{Dir: dir, Name: "s"}); contents(state) != "hello | hi" {
		t.Errorf("got %q", contents(state))
	}
}

// However much there is of a conversation, on a disk with room or on a full one, the file has
// all of it in the end: one that lacked messages that a later compaction counts could not be
// read any more. Other things are refused when too much waits.
func TestMoreThanTheBacklogHolds(t *testing.T) {
	const results, size = 320, 60 << 10 // 18 MiB
	var many []transcript.Record
	for range results {
		many = append(many, message(protocol.RoleTool, strings.Repeat("x", size)))
	}
	for _, full := range []bool{false, true} {
		dir := t.TempDir()
		j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
		if full {
			j.Break(size, syscall.ENOSPC)
		}
		if err := j.Append(many...); errors.Is(err, syscall.ENOSPC) != full || (err != nil) != full {
			t.Errorf("full %v: %v", full, err)
		}
		if err := j.Append(transcript.Note{Key: "n", At: time.Unix(3, 0).UTC()}); (err != nil) != full || full && !strings.Contains(err.Error(), "wait to be written") {
			t.Errorf("full %v, a note: %v", full, err)
		}
		if err := j.Append(message(protocol.RoleAssistant, "end"), turnEnd); errors.Is(err, syscall.ENOSPC) != full {
			t.Errorf("full %v, end: %v", full, err)
		}
		j.Break(0, nil)
		if err := j.Writable(); err != nil {
			t.Errorf("with room again: %v", err)
		}
		compaction := transcript.Compaction{Dropped: results, Summary: message(protocol.RoleUser, "summary").Message, At: time.Unix(4, 0).UTC()}
		if err := errors.Join(j.Append(compaction), j.Close()); err != nil {
			t.Fatal(err)
		}
		if _, state := open(t, journal.Options{Dir: dir, Name: "s"}); contents(state) != "summary | end" {
			t.Errorf("full %v: got %.200q", full, contents(state))
		}
	}
}

// What was refused does not come true after a restart, though the disk has room
// again; what was only late does.
func TestCommitIsAllOrNothing(t *testing.T) {
	reset := transcript.Reset{SessionID: "new", At: time.Unix(3, 0).UTC()}
	tests := []struct {
		name  string
		limit int // bytes that can be written
	}{
		{"the write fails", 10},
		{"the sync fails", 1 << 20},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			j, begun := open(t, journal.Options{Dir: dir, Name: "s"})
			if err := j.Append(message(protocol.RoleUser, "hello")); err != nil {
				t.Fatal(err)
			}
			j.Break(tt.limit, syscall.ENOSPC)
			if err := j.Commit(reset); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("got %v, want %v", err, syscall.ENOSPC)
			}
			j.Break(0, nil)
			if err := j.Append(message(protocol.RoleAssistant, "hi"), turnEnd); err != nil {
				t.Fatal(err)
			}
			j.Close()
			j, state := open(t, journal.Options{Dir: dir, Name: "s"})
			if contents(state) != "hello | hi" || state.SessionID != begun.SessionID {
				t.Errorf("after a refused reset: %q, session %s", contents(state), state.SessionID)
			}
			if err := j.Commit(reset); err != nil {
				t.Fatal(err)
			}
			j.Close()
			if _, state := open(t, journal.Options{Dir: dir, Name: "s"}); contents(state) != "" || state.SessionID != "new" {
				t.Errorf("after a reset: %q, session %s", contents(state), state.SessionID)
			}
		})
	}
}

// A commit goes after what could not be written before it, and not without it.
func TestCommitKeepsItsPlace(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
	j.Break(0, syscall.ENOSPC)
	if err := errors.Join(j.Append(message(protocol.RoleUser, "hello")), j.Commit(turnEnd)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want %v", err, syscall.ENOSPC)
	}
	j.Break(0, nil)
	model := "m"
	if err := j.Commit(transcript.Settings{Model: &model}); err != nil {
		t.Fatal(err)
	}
	j.Close()
	_, state := open(t, journal.Options{Dir: dir, Name: "s"})
	if contents(state) != "hello" || state.Settings.Model == nil || state.LastOutcome != "interrupted" {
		t.Errorf("got %q, settings %v, outcome %s", contents(state), state.Settings, state.LastOutcome)
	}
}

func TestDiscardRemovesOnlyWhatItBegan(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []bool{false, true} { // left behind
		j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
		if err := j.Discard(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "s.jsonl")); (err == nil) != want {
			t.Errorf("the file is there: %v, want %v", err == nil, want)
		}
		j, _ = open(t, journal.Options{Dir: dir, Name: "s"})
		j.Close()
	}
}

func TestNilJournalSavesNothing(t *testing.T) {
	var j *journal.Journal
	j.Partial("1", "x", "")
	if err := errors.Join(j.Append(turnEnd), j.Commit(turnEnd), j.Sync(), j.Writable(), j.Discard(), j.Close()); err != nil || j.Path() != "" || j.Torn() != 0 {
		t.Errorf("%v, path %q", err, j.Path())
	}
}
