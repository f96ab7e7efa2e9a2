package main_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// removes runs nexus cluster remove at a machine, and is all that it says.
func (s *live) removes(args ...string) (says string, err error) {
	cmd := exec.Command(filepath.Join(programs, "nexus"), append([]string{"cluster", "remove", "--home", s.home}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// refusesRemoval says that a machine is not removed by way of this one.
func (s *live) refusesRemoval(want string, args ...string) {
	s.Helper()
	if says, err := s.removes(args...); err == nil || !strings.Contains(says, want) {
		s.Errorf("remove %q: %v, %s, want %q", args, err, says, want)
	}
}

// A machine that is lost for good is removed, and another one joins: what the machines keep is on three again, so that the next one may be lost. The machine that was removed is
// not let in when it comes back; one of its name with another certificate and an empty home is, and gets the agents that waited for it.
func TestClusterRemove(t *testing.T) {
	t.Parallel()
	shared, own := t.TempDir(), t.TempDir()
	addresses := clusterAddresses(t, "a", "b", "c", "d")
	dir, log := initCluster(t, addresses[:3]...), filepath.Join(t.TempDir(), "log")
	a := newMachine(t, filepath.Join(dir, "a"), "--shared-path", shared, "--log-file", log)
	filesOfB := filepath.Join(t.TempDir(), "b") // which are on its machine
	if out, err := exec.Command("cp", "-rp", filepath.Join(dir, "b"), filesOfB).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, c := newMachine(t, filesOfB, "--shared-path", shared), newMachine(t, filepath.Join(dir, "c"), "--shared-path", shared)
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b up, c up")
	}
	b.createIn("worker", shared)
	b.createIn("bound", own)
	for _, agent := range []string{"worker", "bound"} {
		if answer := b.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
	}
	a.refusesRemoval("nexus cluster drain b", "b")
	a.refusesRemoval("is the one that is asked", "a")
	a.refusesRemoval("no machine of that name is known", "d")

	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.cmd.Wait() // that it was killed
	a.untilNodes("a up, b lost, c up")
	if says, err := a.removes("b"); err != nil || !strings.Contains(says, "b is removed") || !strings.Contains(says, "keys rotate") || !strings.Contains(says, "bound ") || strings.Contains(says, "worker ") {
		t.Fatalf("remove b: %v\n%s", err, says)
	}
	for _, s := range []*live{a, c} {
		s.untilNodes("a up, b removed, c up") // as an agent waits for it
		untilMoved(t, s, "worker")
	}
	if answer := a.call("/agent/bound", "get_model", `{}`); gjson.Get(answer, "error.data.type").Str != "NODE_UNREACHABLE" || !strings.Contains(answer, "nothing was accepted: it was removed from the cluster, and has not joined anew") {
		t.Errorf("an agent that waits for its machine: %s", answer)
	}

	initAgain(t, dir, addresses[3], "--without", "b")
	d := newMachine(t, filepath.Join(dir, "d"), "--shared-path", shared)
	for _, s := range []*live{a, c, d} {
		s.untilNodes("a up, b removed, c up, d up")
	}
	if says, err := d.removes("b"); err != nil { // what was b's is on d
		t.Fatalf("remove b again: %v\n%s", err, says)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // that it was killed
	for _, s := range []*live{a, d} {
		s.untilNodes("a up, b removed, c lost, d up")
		untilMoved(t, s, "worker")
		if answer := s.call("/agent/worker", "send", `{"content":"My name is Alice","request_id":"first"}`); !gjson.Get(answer, "result.replayed").Bool() {
			t.Errorf("what was acknowledged: %s", answer)
		}
	}
	eventually(t, "an agent is made", func() (none struct{}, err error) { // once the machines that are left have elected one that leads
		answer := d.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"later","cwd":%q,"if_exists":"use"}`, shared))
		if gjson.Get(answer, "result.agent_id").Str != "later" {
			err = errors.New(answer)
		}
		return none, err
	})
	a.refusesRemoval("that is no majority", "d", "--force")

	b.again()
	untilLogged(t, log, "the machine b was removed from the cluster on")
	if states, agrees := b.nodes(); states != "b up" || agrees {
		t.Errorf("the machine that was removed knows %s, agrees: %t", states, agrees)
	}
	a.untilNodes("a up, b removed, c lost, d up")
	b.end()
	initAgain(t, dir, addresses[1])
	b = newMachine(t, filepath.Join(dir, "b"), "--shared-path", shared) // in another home
	a.untilNodes("a up, b up, c lost, d up")
	untilMoved(t, b, "bound")
	untilMoved(t, a, "bound")

	c.again()
	a.untilNodes("a up, b up, c up, d up")
	if says, err := a.removes("c", "--force"); err != nil {
		t.Errorf("a machine that is up is removed: %v\n%s", err, says)
	}
	stuck := time.AfterFunc(patience, func() { _ = c.cmd.Process.Signal(syscall.SIGABRT) })
	defer stuck.Stop()
	if err := c.cmd.Wait(); err == nil || !strings.Contains(c.log.String(), "the machine c was removed from the cluster nexus") {
		t.Errorf("the server of a machine that was removed ended with %v\n%s", err, c.log)
	}
	again := exec.Command(filepath.Join(programs, "nexus"), "serve", "0", "--home", c.home, "--cluster-files", filepath.Join(dir, "c"))
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), "joins it only with a certificate that was made since") {
		t.Errorf("it starts again: %v\n%s", err, out)
	}
	a.untilNodes("a up, b up, d up")
	for _, s := range []*live{a, b, d} {
		untilMoved(t, s, "worker")
	}
	b.end()
	d.end()
	a.end()
}

// initAgain makes the files of a cluster anew for another machine.
func initAgain(t *testing.T, dir, machine string, flags ...string) {
	t.Helper()
	if out, err := exec.Command(filepath.Join(programs, "nexus"), append([]string{"cluster", "init", dir, machine}, flags...)...).CombinedOutput(); err != nil {
		t.Fatal(errors.Join(err, errors.New(string(out))))
	}
}
