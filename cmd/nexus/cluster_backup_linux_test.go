package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
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
	if said, err := save(c.home, "whole.tar.gz"); err != nil || !strings.Contains(said, "2 sessions") {
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
		if said, err := restore(strings.TrimPrefix(cmd.Env[i], "NEXUS_HOME=")); err != nil {
			t.Fatalf("%v: %s", err, said)
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
