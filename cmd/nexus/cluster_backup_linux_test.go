package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// A backup that one machine makes has the agents of all, while they work. A home that is made of it is the first of another cluster, where the agents go
// on. One that is killed, refused or cut off leaves no file of that name.
func TestClusterBackup(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	a.createIn("one", shared)
	b.createIn("two", shared)
	for agent, s := range map[string]*live{"one": a, "two": b} {
		if answer := s.send(agent, "My name is Alice"); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
	}
	dir := t.TempDir()
	save := func(home, file string) (said string, err error) {
		out, err := exec.Command(filepath.Join(programs, "nexus"), "cluster", "backup", filepath.Join(dir, file), "--home", home).CombinedOutput()
		return string(out), err
	}
	size := regexp.MustCompile(`2 sessions, \d+ files, \d+ bytes unpacked of `)
	said, err := save(c.home, "whole.tar.gz")
	saved := size.FindString(said)
	if err != nil || saved == "" {
		t.Fatalf("%v: %s", err, said)
	}
	if said, err := save(a.home, "whole.tar.gz"); err == nil || !strings.Contains(said, "exists") {
		t.Errorf("over a file: %v: %s", err, said)
	}
	if said, err := save(dir, "none.tar.gz"); err == nil || !strings.Contains(said, "no server that is a machine of a cluster runs in") {
		t.Errorf("without a server: %v: %s", err, said)
	}
	for range 3 {
		cut := exec.Command(filepath.Join(programs, "nexus"), "cluster", "backup", filepath.Join(dir, "cut.tar.gz"), "--home", b.home)
		if err := cut.Start(); err != nil {
			t.Fatal(err)
		}
		_ = cut.Process.Kill()
		_ = cut.Wait() // that it was killed
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // that it was killed
	if said, err := save(c.home, "dead.tar.gz"); err == nil {
		t.Errorf("of a killed server: %s", said)
	}
	for _, name := range []string{"none.tar.gz", "dead.tar.gz", "cut.tar.gz"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil { // a kill may have come too late
			if out, err := exec.Command(filepath.Join(programs, "nexus"), "restore", filepath.Join(dir, name), "--home", filepath.Join(dir, "of-"+name)).CombinedOutput(); err != nil {
				t.Errorf("there is a half %s of %d bytes: %s", name, info.Size(), out)
			}
		}
	}
	restore := func(home string) (said string, err error) {
		out, err := exec.Command(filepath.Join(programs, "nexus"), "cluster", "restore", filepath.Join(dir, "whole.tar.gz"), "--home", home).CombinedOutput()
		return string(out), err
	}
	if said, err := restore(a.home); err == nil || !strings.Contains(said, "is not empty") {
		t.Errorf("over agents: %v: %s", err, said)
	}
	files := initCluster(t, clusterAddresses(t, "x", "y")...)
	x := newLive(t, func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--cluster-files", filepath.Join(files, "x"), "--shared-path", shared)
		i := slices.IndexFunc(cmd.Env, func(pair string) bool { return strings.HasPrefix(pair, "NEXUS_HOME=") })
		if said, err := restore(strings.TrimPrefix(cmd.Env[i], "NEXUS_HOME=")); err != nil || size.FindString(said) != saved {
			t.Fatalf("%v: %s, want %s", err, said, saved)
		}
	})
	y := newMachine(t, filepath.Join(files, "y"), "--shared-path", shared)
	y.untilNodes("x up, y up")
	for _, agent := range []string{"one", "two"} {
		untilMoved(t, y, agent)
		if of := y.owner(agent); of != "x" {
			t.Errorf("%s is of %q", agent, of)
		}
	}
	if got := gjson.Get(y.call("/", "list_sessions", `{}`), "result.sessions.#").Int(); got != 2 {
		t.Errorf("the new cluster has %d sessions", got)
	}
	for _, s := range []*live{y, x, b, a} {
		s.end()
	}
}

// An agent whose first start failed is in a backup as it was saved. One of which what is kept cannot be read is named, and the others are there.
func TestClusterBackupOfSome(t *testing.T) {
	t.Parallel()
	shared, dir := t.TempDir(), t.TempDir()
	files := initCluster(t, clusterAddresses(t, "x", "y")...)
	x := newMachine(t, filepath.Join(files, "x"), "--shared-path", shared)
	y := newMachine(t, filepath.Join(files, "y"), "--shared-path", shared)
	x.untilNodes("x up, y up")
	for _, agent := range []string{"good", "bad"} {
		x.createIn(agent, shared)
		if answer := x.send(agent, "My name is Alice"); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
	}
	old := filepath.Join(dir, "old")
	session := `{"type":"session","version":1,"session_id":"3bf9fb70-1ca4-4755-8e91-cbf5f4576247","name":"odd","created_at":"2026-11-30T02:35:30Z"}
{"type":"settings","model":"x","provider":"offline","cwd":"/","permissions":{"preset":"nosuchpreset"},"at":"2026-11-30T02:35:30Z"}
`
	if err := errors.Join(os.MkdirAll(filepath.Join(old, "sessions"), 0o700), os.WriteFile(filepath.Join(old, "sessions", "odd.jsonl"), []byte(session), 0o600)); err != nil {
		t.Fatal(err)
	}
	x.wantImported(false, map[string]string{"odd": "brought odd"}, old)
	if answer := x.call("/agent/odd", "send", `{"content":"hi"}`); !gjson.Get(answer, "error").Exists() {
		t.Fatalf("it starts, so this proves nothing: %s", answer)
	}
	number := 0
	save := func() (file, said string, err error) {
		number++
		file = filepath.Join(dir, fmt.Sprintf("%d.tar.gz", number))
		out, err := exec.Command(filepath.Join(programs, "nexus"), "cluster", "backup", file, "--home", y.home).CombinedOutput()
		return file, string(out), err
	}
	eventually(t, "with an agent that did not start there is no backup", func() (any, error) { // y may not know yet that they are a majority
		_, said, err := save()
		if err != nil || !strings.Contains(said, "3 sessions") {
			return nil, fmt.Errorf("%v: %s", err, said)
		}
		return nil, nil
	})
	x.call("/agent/bad", "destroy_agent", `{}`)
	records, err := filepath.Glob(filepath.Join(x.home, "sessions", "bad.records", "*.jsonl"))
	if err != nil || len(records) != 1 {
		t.Fatalf("%q, %v", records, err)
	}
	if err := os.WriteFile(records[0], []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := eventually(t, "what is damaged is shipped, and named", func() (string, error) {
		file, said, err := save()
		if err == nil || !strings.Contains(said, "2 sessions") || !strings.Contains(said, file+" lacks agents of which what the machines keep cannot be read: bad (session bad: ") {
			return "", fmt.Errorf("%w: %s", err, said)
		}
		return file, nil
	})
	home := filepath.Join(dir, "restored")
	if out, err := exec.Command(filepath.Join(programs, "nexus"), "cluster", "restore", file, "--home", home).CombinedOutput(); err != nil || !strings.Contains(string(out), "2 sessions") {
		t.Errorf("%v: %s", err, out)
	}
	if bad, _ := filepath.Glob(filepath.Join(home, "sessions", "bad*")); len(bad) > 0 {
		t.Errorf("of what is damaged there is %q", bad)
	}
	y.end()
	x.end()
}
