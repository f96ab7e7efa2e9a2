package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// talk starts a bare child, or one with flags, says something, and gives its session id,
// its answer and what it wrote to stderr.
func talk(t *testing.T, home, message string, flags ...string) (id, answer, stderr string) {
	t.Helper()
	p := startChild(t, home, append([]string{"rpc"}, flags...)...)
	p.send(`{"type":"get_state","id":"s"}`)
	state := p.want("id", "s")
	p.send(`{"type":"prompt","id":"1","message":"` + message + `"}`)
	p.want("id", "1")
	p.send(`{"type":"get_messages","id":"m"}`)
	answer = p.want("id", "m").Get("messages.@reverse.0.content").String()
	p.stdin.Close()
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d: %s", status, p.stderr.String())
	}
	checkFile(t, home, state, flags)
	return state.Get("session_id").String(), answer, p.stderr.String()
}

// checkFile checks what a child with or without --no-session says of its file.
func checkFile(t *testing.T, home string, state gjson.Result, flags []string) {
	t.Helper()
	if state.Get("session_name").Type != gjson.Null {
		t.Errorf("an unnamed session has the name %s", state.Get("session_name"))
	}
	file := state.Get("session_file").String()
	if strings.HasPrefix(strings.Join(flags, " "), "--no-session") || file == "" {
		if file != "" {
			t.Errorf("with %v the session is %s", flags, file)
		}
		return
	}
	if filepath.Dir(file) != filepath.Join(home, "sessions") {
		t.Errorf("the session is %s", file)
	}
	for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// A parent that knows none of the flags that say where a conversation is saved found it
// lost when it wanted to go on: "no such session".
func TestABareChildIsContinued(t *testing.T) {
	home := t.TempDir()
	id, _, _ := talk(t, home, "My name is Alice")
	other, _, _ := talk(t, home, "My name is Bob")
	if _, answer, _ := talk(t, home, "What is my name?", "--continue", id); !strings.Contains(answer, "Alice") {
		t.Errorf("%s went on with %q", id, answer)
	}
	again, answer, _ := talk(t, home, "What is my name?", "--continue", other)
	if !strings.Contains(answer, "Bob") || again != other {
		t.Errorf("%s went on as %s with %q", other, again, answer)
	}
}

func TestNoSession(t *testing.T) {
	home := t.TempDir()
	id, _, _ := talk(t, home, "hello", "--no-session")
	for dir, want := range map[string]string{home: "[d run/]", filepath.Join(home, "run"): "[d scratch/]", filepath.Join(home, "run", "scratch"): "[]"} {
		if entries, err := os.ReadDir(dir); err != nil || fmt.Sprint(entries) != want {
			t.Errorf("it left %v, %v, want %s", entries, err, want)
		}
	}
	if said := refused(t, command(t, home, nil, "--continue", id)); !strings.Contains(said, "no such session") {
		t.Errorf("got %s", said)
	}
	for _, flag := range []string{"--session=a", "--continue=a", "--session-dir=a"} {
		if said := refused(t, command(t, home, nil, "--no-session", flag)); !strings.Contains(said, "--no-session excludes") {
			t.Errorf("%s: %s", flag, said)
		}
	}
}

// Where nothing can be saved a bare child works all the same, and says so. One that was
// told to save does not start.
func TestABareChildThatCannotSave(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "sessions"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, answer, stderr := talk(t, home, "echo here")
	if answer != "here" || !strings.Contains(stderr, "the conversation is not saved and cannot be continued later") {
		t.Errorf("answered %q, stderr: %s", answer, stderr)
	}
	refused(t, command(t, home, nil, "--session", "a"))
}

// What a bare child left long ago is removed when the next one starts, unless it is
// open, or the configuration keeps it.
func TestOldUnnamedSessionsAreRemoved(t *testing.T) {
	home := t.TempDir()
	path := func(id string) string { return filepath.Join(home, "sessions", id+".jsonl") }
	age := func(id string, days int) {
		t.Helper()
		then := time.Now().AddDate(0, 0, -days)
		if err := os.Chtimes(path(id), then, then); err != nil {
			t.Fatal(err)
		}
	}
	old, _, _ := talk(t, home, "hello")
	recent, _, _ := talk(t, home, "hello")
	open := startChild(t, home)
	open.send(`{"type":"get_state","id":"s"}`)
	held := open.want("id", "s").Get("session_id").String()
	age(old, 31)
	age(recent, 29)
	age(held, 31)
	config := filepath.Join(home, "config.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := func(id string) bool {
		_, err := os.Stat(path(id))
		return !errors.Is(err, os.ErrNotExist)
	}
	for _, tt := range []struct {
		name, config      string
		flags             []string
		old, recent, held bool
	}{
		{"kept for good", `{"sessions":{"keep_unnamed_days":0}}`, nil, true, true, true},
		{"kept longer", `{"sessions":{"keep_unnamed_days":60}}`, nil, true, true, true},
		{"beside a child that saves nothing", `{}`, []string{"--no-session"}, true, true, true},
		{"kept for 30 days", `{}`, nil, false, true, true},
		{"kept for a day", `{"sessions":{"keep_unnamed_days":1}}`, nil, false, false, true},
	} {
		write(tt.config)
		talk(t, home, "hello", tt.flags...)
		if there(old) != tt.old || there(recent) != tt.recent || there(held) != tt.held {
			t.Errorf("%s: left old %t, recent %t, open %t; want %t, %t, %t",
				tt.name, there(old), there(recent), there(held), tt.old, tt.recent, tt.held)
		}
	}
	open.stdin.Close()
	open.wait()
}
