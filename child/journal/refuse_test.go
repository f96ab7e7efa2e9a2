package journal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/child/journal"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// sound is a file with a header and a turn.
func sound(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
	if err := errors.Join(j.Append(message(protocol.RoleUser, "hello"), message(protocol.RoleAssistant, "hi"), turnEnd), j.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "s.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What is no session may be somebody's only copy of something, and a damaged
// one is somebody's conversation: neither is cut off, nor begun anew.
func TestWhatCannotBeReadIsLeftAsItIs(t *testing.T) {
	whole := sound(t)
	header, _, _ := strings.Cut(whole, "\n")
	tests := []struct {
		name, data string
		line       string
		foreign    bool
	}{
		{"notes", "my only copy of notes", "line 1: ", true},
		{"a line", "hello\n", "line 1: ", true},
		{"another JSON", `{"notes":["a"]}` + "\n", "line 1: ", true},
		{"a header with a damaged byte", strings.Replace(header, `"type"`, `"tyqe"`, 1) + "\n", "line 1: ", true},
		{"the same and no newline", strings.Replace(header, `"type"`, `"tyqe"`, 1), "line 1: ", true},
		{"a header that is damaged later", strings.Replace(header, `"created_at"`, `"treated_at"`, 1) + "\n", "line 1: ", false},
		{"a last line with a damaged byte", strings.Replace(whole, `"type":"turn_end"`, `"type":"turn_end`, 1), "line 4: ", false},
	}
	for _, tt := range tests {
		for how, o := range map[string]journal.Options{"name": {Name: "s"}, "continue": {Continue: "s"}} {
			t.Run(tt.name+" by "+how, func(t *testing.T) {
				o.Dir = t.TempDir()
				path := filepath.Join(o.Dir, "s.jsonl")
				if err := os.WriteFile(path, []byte(tt.data), 0o600); err != nil {
					t.Fatal(err)
				}
				_, _, err := journal.Open(o)
				if _, ok := errors.AsType[*transcript.LineError](err); !ok || errors.Is(err, transcript.ErrNoSession) != tt.foreign ||
					!strings.Contains(err.Error(), path+": "+tt.line) {
					t.Errorf("got %v, want the file and %q", err, tt.line)
				}
				if left, err := os.ReadFile(path); err != nil || string(left) != tt.data {
					t.Errorf("the file is %q, %v", left, err)
				}
			})
		}
	}
}

// A damaged session that is asked for by its id is refused as one, not taken
// for unknown.
func TestADamagedSessionIsFoundByItsID(t *testing.T) {
	whole := sound(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s.jsonl"), []byte(whole+"{]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	state, _, err := transcript.Parse(bytes.NewReader([]byte(whole)))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = journal.Open(journal.Options{Dir: dir, Continue: state.SessionID})
	if fault, ok := errors.AsType[*transcript.LineError](err); !ok || fault.Line != 5 {
		t.Errorf("got %v, want an error in line 5", err)
	}
}

// A process may be killed, and a machine lose its power, in the first write.
func TestATornHeaderIsBegunAnew(t *testing.T) {
	header, _, _ := strings.Cut(sound(t), "\n")
	torn := []string{"\x00\x00\x00", header[:9] + "\x00\x00"}
	for n := range len(header) {
		torn = append(torn, header[:n])
	}
	dir := t.TempDir()
	for _, data := range torn {
		if err := os.WriteFile(filepath.Join(dir, "s.jsonl"), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		j, _ := open(t, journal.Options{Dir: dir, Name: "s"})
		if j.Torn() != int64(len(data)) {
			t.Errorf("%q: %d bytes are cut off", data, j.Torn())
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j, _ = open(t, journal.Options{Dir: dir, Continue: "s"})
		j.Close()
	}
}

// A link leads to a file that is nobody's session.
func TestALinkIsRefused(t *testing.T) {
	whole := sound(t)
	for name, data := range map[string]string{"to a session": whole, "to an empty file": "", "to nothing": "-"} {
		for how, o := range map[string]journal.Options{"name": {Name: "s"}, "continue": {Continue: "s"}} {
			t.Run(name+" by "+how, func(t *testing.T) {
				o.Dir = t.TempDir()
				other := filepath.Join(t.TempDir(), "other")
				if data != "-" {
					if err := os.WriteFile(other, []byte(data), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				link := filepath.Join(o.Dir, "s.jsonl")
				if err := os.Symlink(other, link); err != nil {
					t.Fatal(err)
				}
				if _, _, err := journal.Open(o); !errors.Is(err, safefile.ErrNotRegular) || !strings.Contains(err.Error(), link) {
					t.Errorf("got %v, want %v", err, safefile.ErrNotRegular)
				}
				left, err := os.ReadFile(other)
				if string(left) != strings.Trim(data, "-") || (err != nil) != (data == "-") {
					t.Errorf("the other file is %q, %v", left, err)
				}
			})
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "s.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Open(journal.Options{Dir: dir, Name: "s"}); !errors.Is(err, safefile.ErrNotRegular) {
		t.Errorf("a directory: got %v, want %v", err, safefile.ErrNotRegular)
	}
}

// Nothing is called saved that nobody would find again, and all is well once
// the file is back.
func TestAFileThatIsGone(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		for name, take := range map[string]func(path string) error{
			"removed":  os.Remove,
			"moved":    func(path string) error { return os.Rename(path, path+".old") },
			"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
			"a link now": func(path string) error {
				return errors.Join(os.Rename(path, path+".old"), os.Symlink(path+".old", path))
			},
		} {
			t.Run(name, func(t *testing.T) {
				j, _ := open(t, journal.Options{Dir: t.TempDir(), Name: "s", NoSync: noSync})
				if err := errors.Join(j.Writable(), j.Append(turnEnd), j.Sync()); err != nil {
					t.Fatal(err)
				}
				if err := take(j.Path()); err != nil {
					t.Fatal(err)
				}
				if err := j.Append(turnEnd); err != nil {
					t.Fatal(err)
				}
				for what, err := range map[string]error{"sync": j.Sync(), "writable": j.Writable(), "commit": j.Commit(turnEnd)} {
					if !errors.Is(err, journal.ErrRemoved) || !strings.Contains(err.Error(), j.Path()) {
						t.Errorf("%s: got %v, want %v", what, err, journal.ErrRemoved)
					}
				}
				if name == "moved" {
					if err := errors.Join(os.Rename(j.Path()+".old", j.Path()), j.Writable(), j.Sync()); err != nil {
						t.Errorf("the file is back: %v", err)
					}
				}
				if err := j.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A start that comes to nothing removes its own file, not the one that stands
// there now.
func TestDiscardLeavesAnothersFile(t *testing.T) {
	j, _ := open(t, journal.Options{Dir: t.TempDir(), Name: "s"})
	if err := errors.Join(os.Remove(j.Path()), os.WriteFile(j.Path(), []byte("another's"), 0o600), j.Discard()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadFile(j.Path()); err != nil || string(left) != "another's" {
		t.Errorf("the file is %q, %v", left, err)
	}
}
