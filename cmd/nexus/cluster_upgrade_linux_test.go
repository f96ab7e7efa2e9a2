package main_test

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
)

// The machines of a cluster are upgraded one at a time, as cmd/OPERATIONS.md has it, while all agents are asked all the time: nothing is forgotten, and
// what is sent again by its request_id, as there was no answer, is in the conversation once. One goes back to the earlier release, and another one is lost while both releases are there. NEXUS_EARLIER_BIN names the
// directory of the earlier programs; without it, they are the same.
func TestClusterUpgrade(t *testing.T) {
	t.Parallel()
	earlier := cmp.Or(os.Getenv("NEXUS_EARLIER_BIN"), programs)
	names := []string{"a", "b", "c"}
	shared, dir, release, all := t.TempDir(), initCluster(t, clusterAddresses(t, names...)...), map[string]string{}, map[string]*live{}
	for _, name := range names {
		release[name] = earlier
		all[name] = newLive(t, func(cmd *exec.Cmd) {
			cmd.Path = filepath.Join(release[name], "nexus")
			cmd.Args = append(cmd.Args, "--cluster-files", filepath.Join(dir, name), "--shared-path", shared)
		})
	}
	known := func(states string) {
		t.Helper()
		for _, s := range all {
			s.untilNodes(states)
		}
	}
	const whole = "a up, b up, c up"
	known(whole)
	agents := all["a"].manyIn(shared, 6)
	made := &asked{again: true, sends: map[string]int{}}
	change := func(name, to, draining string) {
		t.Helper()
		over := make(chan struct{})
		var asking sync.WaitGroup
		var other *live
		for _, s := range all {
			if s != all[name] {
				other = s
				asking.Go(func() { made.keepAsking(s, agents, over) })
			}
		}
		if out, err := other.nexus("cluster", "drain", name); err != nil {
			t.Errorf("drain %s: %s, %v", name, out, err)
		}
		all[name].end()
		release[name] = to
		all[name].again()
		known(draining)
		if out, err := other.nexus("cluster", "drain", name, "--undo"); err != nil {
			t.Errorf("undo the drain of %s: %s, %v", name, out, err)
		}
		known(whole)
		close(over)
		asking.Wait()
	}
	change("a", programs, "a draining, b up, c up")
	change("b", programs, "a up, b draining, c up")
	change("c", programs, "a up, b up, c draining")
	// All read objects now: an image goes to the object store, and its agent to a machine that reads it.
	const large = "w0"
	image := base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 400_000)...))
	if answer := all["c"].call("/agent/"+large, "send", `{"content":"echo here","request_id":"large","attachments":[{"name":"picture","data":"`+image+`"}]}`); gjson.Get(answer, "error").Exists() {
		t.Errorf("a send with an image: %.300s", answer)
	}
	made.sends[large]++
	if size := objectBytes(t, all["a"].home) + objectBytes(t, all["b"].home) + objectBytes(t, all["c"].home); size < 2*400_000 {
		t.Errorf("two of the object stores have %d bytes", size)
	}
	change("b", earlier, "a up, b draining, c up")
	for _, agent := range agents {
		for name, s := range all {
			if got, want := int(gjson.Get(s.call("/agent/"+agent, "get_context", `{}`), "result.message_count").Int()), 2*(made.sends[agent]+1); got != want {
				t.Errorf("%s has %d messages at %s, of %d turns", agent, got, name, want/2)
			}
		}
	}
	if err := all["c"].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = all["c"].cmd.Wait() // that it was killed
	for _, agent := range agents {
		untilMoved(t, all["a"], agent)
		untilMoved(t, all["b"], agent)
	}
	all["c"].again()
	for _, s := range all {
		eventually(t, "all machines are up", func() (none struct{}, err error) {
			// The earlier program may have met the agent with the image, which it leaves to the others.
			if states, agrees := s.nodes(); states != whole || !agrees && !strings.HasSuffix(s.problem(), "upgrade it") {
				err = fmt.Errorf("they are %s, %s", states, s.problem())
			}
			return none, err
		})
	}
	for _, name := range names {
		for _, agent := range agents {
			untilMoved(t, all[name], agent)
		}
		defer all[name].end()
	}
}

// objectBytes is how many bytes the object store has on the disk of a machine.
func objectBytes(t *testing.T, home string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(home, "cluster"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, "OBJ_") && entry.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}
