package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nexus.internal/protocol"
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

// A directory in the place of a file of the home says nothing of the session; in the place of
// the session's file, it does.
func TestDirectoriesInPlaceOfFiles(t *testing.T) {
	for name, want := range map[string]int{
		"NEXUS.md": 2, "config.json": 2, "sessions/a.jsonl": protocol.ExitSessionDamaged,
	} {
		home := t.TempDir()
		if err := os.MkdirAll(filepath.Join(home, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if got := refusedAs(t, command(t, home, nil, "--session=a"), want); !strings.Contains(got, name+": is not a regular file") {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// A signal ends a child that waits for the writer of a pipe before it is ready. It has the
// pipe from its parent, as a shell's <(command).
func TestASignalEndsTheStart(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := command(t, t.TempDir(), nil, "--no-session", "--system-file", "/dev/fd/3")
	p.cmd.ExtraFiles = []*os.File{r}
	if err := errors.Join(p.cmd.Start(), r.Close()); err != nil {
		t.Fatal(err)
	}
	// More than a pipe has room for: when it is written, the child reads.
	if _, err := w.WriteString(strings.Repeat("x", 128<<10)); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}

// A file that is named is a regular one, or open already: no pipe's other end is waited for,
// and no more is read than a file of that kind may have.
func TestNamedFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, sparse := filepath.Join(dir, "pipe"), filepath.Join(dir, "sparse")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 2<<30)); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--system-file", "--scenario", "--config"} {
		for path, want := range map[string]string{
			pipe: "is not a regular file", dir: "is not a regular file", "/dev/zero": "is not a regular file", sparse: "larger than",
			filepath.Join(dir, "none"): "no such file",
		} {
			if got := refusedAs(t, command(t, t.TempDir(), nil, "--no-session", flag, path), 2); !strings.Contains(got, want) {
				t.Errorf("%s %s: got %s, want %s", flag, path, got, want)
			}
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := command(t, t.TempDir(), nil, "--no-session", "--system-file", "/dev/fd/3")
	p.cmd.ExtraFiles = []*os.File{r}
	if _, err := w.WriteString("Be brief."); errors.Join(err, w.Close()) != nil {
		t.Fatal(err)
	}
	p.start()
	r.Close()
	p.send(`{"type":"prompt","id":"1","message":"hello"}`)
	p.want("type", "response")
	p.send(`{"type":"shutdown"}`)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}
