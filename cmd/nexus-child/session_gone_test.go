package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A turn whose session nobody would find after a restart is not acknowledged,
// and the child goes on.
func TestASessionFileThatIsRemoved(t *testing.T) {
	sessions := t.TempDir()
	path := filepath.Join(sessions, "s.jsonl")
	p := startChild(t, t.TempDir(), "--session-dir", sessions, "--session", "s")
	prompt := func(id string, ok bool) {
		t.Helper()
		p.send(`{"type":"prompt","id":"` + id + `","message":"echo hello"}`)
		got := p.want("id", id)
		for got.Get("type").String() != "response" {
			got = p.want("id", id)
		}
		if got.Get("ok").Bool() != ok || !ok && !strings.Contains(got.Get("error").String(), "the session's file was removed") {
			t.Errorf("prompt %s: got %s", id, got)
		}
	}
	prompt("1", true)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	prompt("2", false)
	if err := os.WriteFile(path, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	prompt("3", false)
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	prompt("4", true)
	p.stdin.Close()
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}

// What is no session is refused before ready, and stays.
func TestAForeignFileIsNotBegunAnew(t *testing.T) {
	for _, flag := range []string{"--session=notes", "--continue=notes"} {
		sessions := t.TempDir()
		path := filepath.Join(sessions, "notes.jsonl")
		const notes = "my only copy of notes"
		if err := os.WriteFile(path, []byte(notes), 0o600); err != nil {
			t.Fatal(err)
		}
		got := refusedAs(t, command(t, t.TempDir(), nil, flag, "--session-dir", sessions), 65)
		if !strings.Contains(got, path+": line 1: this does not begin as a session does") {
			t.Errorf("%s: got %s", flag, got)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != notes {
			t.Errorf("%s: the file is %q, %v", flag, left, err)
		}
	}
}
