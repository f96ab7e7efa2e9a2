package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The disk of a machine is filled until its nexus-cluster keeps nothing any more. Once it is freed the machine is one of three again, by itself: another one may
// be lost then. Without a new start of nexus-cluster the next machine that is lost would have had no majority go on.
func TestClusterOnFullDisk(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv(inNamespace) == "" {
		asRootOfItsOwn(t)
		return
	}
	shared, dir := t.TempDir(), initCluster(t, clusterAddresses(t, "a", "b", "c")...)
	var all []*live
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, newLive(t, func(cmd *exec.Cmd) {
			cmd.Args = append(cmd.Args, "--cluster-files", filepath.Join(dir, name), "--shared-path", shared)
			if name == "b" {
				onSmallDisk(t, 32)(cmd)
			}
		}))
	}
	a, b, c := all[0], all[1], all[2]
	for _, s := range all {
		s.untilNodes("a up, b up, c up")
	}
	a.createIn("worker", shared)
	answered(t, a, "My name is Alice", "Alice")
	before, err := b.engine()
	if err != nil {
		t.Fatal(err)
	}
	ballast, err := os.Create(filepath.Join(b.home, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer ballast.Close()
	n := 0
	eventually(t, "nexus-cluster gives up", func() (none struct{}, err error) {
		for size := 1 << 20; size > 0; {
			if _, err := ballast.Write(bytes.Repeat([]byte("x"), size)); err != nil {
				size /= 2
			}
		}
		n++ // what a keeps is kept by b, too
		a.send("worker", fmt.Sprintf("echo %d %s", n, bytes.Repeat([]byte("x"), 2_000)))
		if now, err := b.engine(); err == nil && now == before {
			return none, errors.New("it runs")
		}
		return none, nil
	})
	if err := errors.Join(ballast.Truncate(0), os.Remove(ballast.Name())); err != nil {
		t.Fatal(err)
	}
	b.untilNodes("a up, b up, c up")
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // that it was killed
	untilMoved(t, a, "worker")
	untilMoved(t, b, "worker")
}
