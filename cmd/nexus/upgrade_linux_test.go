package main_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
)

// earlierHome is a home of fixtures/homes, whose agents work in cwd.
func earlierHome(t *testing.T, name, cwd string) (home string) {
	t.Helper()
	home = filepath.Join(t.TempDir(), "home")
	from, err := fs.Sub(fixtures.FS, "homes/"+name)
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(from, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(filepath.Join(home, path), 0o700))
		}
		text, err := fs.ReadFile(from, path)
		return errors.Join(err, os.WriteFile(filepath.Join(home, path), bytes.ReplaceAll(text, []byte(`"/WORK"`), []byte(`"`+cwd+`"`)), 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// everything is what stands in a directory: names, modes, times and texts.
func everything(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := []byte{}
		if d.Type().IsRegular() {
			text, err = os.ReadFile(path)
		}
		all[path] = info.Mode().String() + " " + info.ModTime().String() + "\n" + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What an earlier program kept is there after an update: what agents remember, and which requests
// were carried out. The home then says its format.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"earlier", "unmarked"} {
		t.Run(name, func(t *testing.T) {
			s := &live{T: t, cwd: t.TempDir(), log: &bytes.Buffer{}}
			s.home = earlierHome(t, name, s.cwd)
			for range 2 { // the second start finds what the first has made of it
				s.again()
				text, err := os.ReadFile(filepath.Join(s.home, homeformat.Name))
				if err != nil || gjson.GetBytes(text, "format").Int() != homeformat.Current || gjson.GetBytes(text, "version").Str == "" {
					t.Errorf("its format is %q, %v", text, err)
				}
				for agent, who := range map[string]string{"alice": "Alice", "bob": "Bob"} {
					if answer := s.send(agent, "What is my name?"); !strings.Contains(answer, who) {
						t.Errorf("%s says %s", agent, answer)
					}
					again := s.call("/agent/"+agent, "send", `{"content":"My name is `+who+`","request_id":"first"}`)
					if !strings.Contains(again, "Nice to meet you, "+who) || !gjson.Get(again, "result.replayed").Bool() {
						t.Errorf("%s carries out again what it has done: %s", agent, again)
					}
				}
				s.end()
			}
			for _, part := range []string{"alice.outcomes", "alice.events"} {
				if _, err := os.Lstat(filepath.Join(s.home, "sessions", part)); err == nil {
					t.Errorf("there still is %s", part)
				}
			}
		})
	}
}

// A home that a later program has used is refused in words by all that would open it, and stays as it was.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	home := earlierHome(t, "unmarked", top)
	path := filepath.Join(home, homeformat.Name)
	if err := os.WriteFile(path, []byte(`{"format":2,"version":"v9.0","layout":"of a later program"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	session := filepath.Join(home, "sessions", "alice.jsonl")
	archive := filepath.Join(top, "later.tar.gz")
	if err := os.WriteFile(archive, laterBackup(t), 0o600); err != nil {
		t.Fatal(err)
	}
	words := path + ` says that this home has format 2, as nexus "v9.0" left it, and this program reads formats up to 1: use programs of that version`
	before := everything(t, home)
	for _, tt := range []struct {
		words, program string
		args           []string
	}{
		{words, "nexus", []string{"serve", "0"}},
		{words, "nexus", []string{"--fresh"}},
		{words, "nexus", []string{"--plain"}},
		{words, "nexus", []string{"--connect", "--agent", "alice"}},
		{words, "nexus", []string{"backup", filepath.Join(top, "backup.tar.gz")}},
		{`nexus-backup.json says that this backup has format 99, as nexus "v9.0" left it`, "nexus", []string{"restore", archive, "--home", filepath.Join(top, "restored")}},
		{words, "nexus", []string{"logs", "list"}},
		{words, "nexus", []string{"init", "--force"}},
		{words, "nexus", []string{"config", "check"}},
		{words, "nexus-rpc", []string{"list"}},
		{words, "nexus-rpc", []string{"create", "carol"}},
		{words, "nexus-rpc", []string{"rpc", "--stdio"}},
		{words, "nexus-rpc", []string{"import", session}},
		{`{"error":{"message":"` + strings.ReplaceAll(words, `"`, `\"`), "nexus-rpc", []string{"list", "--json"}},
		{words, "nexus-child", []string{}},
		{words, "nexus-child", []string{"--no-session"}},
		{words, "nexus-child", []string{"--session", "alice", "--session-dir", filepath.Join(home, "sessions")}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, filepath.Join(programs, tt.program), tt.args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + top, "NEXUS_HOME=" + home, "NEXUS_PORT=1", "GORACE=atexit_sleep_ms=0"}
		cmd.Stdin = strings.NewReader("What is my name?\n")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		cancel()
		if cmd.ProcessState.ExitCode() != protocol.ExitHomeNewer || !strings.Contains(stderr.String(), tt.words) || stdout.Len() > 0 {
			t.Errorf("%s %s: %v\nstdout %s\nstderr %s", tt.program, tt.args, err, &stdout, &stderr)
		}
	}
	if diff := cmp.Diff(before, everything(t, home)); diff != "" {
		t.Errorf("the home has changed (-before +after):\n%s", diff)
	}
	for _, made := range []string{"backup.tar.gz", "restored"} {
		if _, err := os.Lstat(filepath.Join(top, made)); err == nil {
			t.Errorf("there is %s", made)
		}
	}
	doctor := exec.Command(filepath.Join(programs, "nexus"), "doctor")
	doctor.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + top, "NEXUS_HOME=" + home, "GORACE=atexit_sleep_ms=0"}
	if out, _ := doctor.CombinedOutput(); !strings.Contains(string(out), "fail  home           "+words) || doctor.ProcessState.ExitCode() != 1 {
		t.Errorf("nexus doctor: %s", out)
	}
	if diff := cmp.Diff(before, everything(t, home)); diff != "" {
		t.Errorf("nexus doctor has changed the home (-before +after):\n%s", diff)
	}

	// Once the home is one of ours again, nothing of it is missing.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s := &live{T: t, home: home, cwd: top, log: &bytes.Buffer{}}
	s.again()
	if answer := s.send("alice", "What is my name?"); !strings.Contains(answer, "Alice") {
		t.Errorf("alice says %s", answer)
	}
	s.end()
}

// laterBackup is the beginning of a backup that a later program wrote.
func laterBackup(t *testing.T) []byte {
	t.Helper()
	const what = `{"format":99,"version":"v9.0","created_at":"2030-01-01T00:00:00Z","keys":true}`
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := tar.NewWriter(packed)
	err := w.WriteHeader(&tar.Header{Name: "nexus-backup.json", Mode: 0o600, Size: int64(len(what))})
	_, failed := w.Write([]byte(what))
	if err := errors.Join(err, failed, w.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
