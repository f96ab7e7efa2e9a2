package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// farm are the servers of three machines, a, b and c, which share a directory.
func farm(t *testing.T) (shared string, a, b, c *live) {
	t.Helper()
	return farmAt(t, clusterAddresses(t, "a", "b", "c"))
}

// farmAt is farm at these addresses.
func farmAt(t *testing.T, addresses []string) (shared string, a, b, c *live) {
	t.Helper()
	shared = t.TempDir()
	dir := initCluster(t, addresses...)
	var all []*live
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, newMachine(t, filepath.Join(dir, name), "--shared-path", shared))
	}
	for _, s := range all {
		s.untilNodes("a up, b up, c up")
	}
	return shared, all[0], all[1], all[2]
}

// createIn has a machine make an agent in a directory.
func (s *live) createIn(agent, cwd string) {
	s.Helper()
	if answer := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q}`, agent, cwd)); gjson.Get(answer, "result.agent_id").Str != agent {
		s.Fatal(answer)
	}
}

// owner is the machine that has an agent, as list_agents or list_sessions of a machine says.
func (s *live) owner(agent string) string {
	if of := gjson.Get(s.call("/", "list_agents", `{}`), fmt.Sprintf("result.agents.#(agent_id==%q).node", agent)).Str; of != "" {
		return of
	}
	return gjson.Get(s.call("/", "list_sessions", `{}`), fmt.Sprintf("result.sessions.#(name==%q).node", agent)).Str
}

// untilMoved waits until a machine answers for an agent that another one had, with what was said to it.
func untilMoved(t *testing.T, s *live, agent string) {
	t.Helper()
	eventually(t, agent+" is taken over", func() (none struct{}, err error) {
		if answer := s.send(agent, "What is my name?"); !strings.Contains(answer, "Your name is Alice.") {
			err = errors.New(answer)
		}
		return none, err
	})
}

// shippedWord reports why the streams of a machine, whose files are on its disk, have no such word of an agent.
func shippedWord(s *live, agent, word string) error {
	var found error = fmt.Errorf("nothing of %s has %q", agent, word)
	err := filepath.WalkDir(filepath.Join(s.home, "cluster"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".blk") {
			text, _ := os.ReadFile(path) // it may have been replaced
			if strings.Contains(string(text), word) {
				found = nil
			}
		}
		return nil
	})
	return errors.Join(err, found)
}

// The machine of an agent is killed in the middle of a turn. The agent goes on at another one, with all that was acknowledged; the turn
// has crashed, once for all. What is of a directory that is not shared waits. When the machine is back it has no second agent of that name.
func TestClusterTakeOver(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	own := t.TempDir()
	b.createIn("worker", shared)
	b.createIn("bound", own)
	for _, agent := range []string{"worker", "bound"} {
		if answer := b.call("/agent/"+agent, "send", `{"content":"My name is Alice","request_id":"first"}`); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
	}
	b.createIn("new", shared) // without a turn
	if answer := b.call("/agent/new", "set_permissions", `{"preset":"sandboxed"}`); gjson.Get(answer, "error").Exists() {
		t.Fatal(answer)
	}
	eventually(t, "another machine has what was set", func() (none struct{}, err error) {
		return none, shippedWord(b, "new", `"preset":"sandboxed"`)
	})
	asked := began(t, a, b, "cut")
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if answer := <-asked; gjson.Get(answer, "error.data.type").Str != "NODE_UNREACHABLE" {
		t.Errorf("of a turn on a machine that was killed, the one that was asked says %s", answer)
	}
	_ = b.cmd.Wait() // that it was killed
	untilMoved(t, a, "worker")
	t.Logf("taken over after %s", time.Since(killed))
	for _, s := range []*live{a, c} {
		if answer := s.call("/agent/worker", "send", `{"content":"count to 100000","request_id":"cut"}`); gjson.Get(answer, "error.data.type").Str != "CHILD_CRASHED" {
			t.Errorf("the turn that was cut off: %s", answer)
		}
		if answer := s.call("/agent/worker", "send", `{"content":"My name is Alice","request_id":"first"}`); !gjson.Get(answer, "result.replayed").Bool() {
			t.Errorf("what was acknowledged: %s", answer)
		}
		if answer := s.call("/agent/bound", "get_model", `{}`); gjson.Get(answer, "error.data.type").Str != "NODE_UNREACHABLE" {
			t.Errorf("what works in a directory of the machine: %s", answer)
		}
	}
	eventually(t, "a new agent is taken over, with what was set", func() (none struct{}, err error) {
		if answer := a.call("/agent/new", "get_permissions", `{}`); gjson.Get(answer, "result.preset").Str != "sandboxed" {
			err = errors.New(answer)
		}
		return none, err
	})
	tellsUnreached(t, a)
	owner := a.owner("worker")
	b.again()
	b.untilNodes("a up, b up, c up")
	for _, s := range []*live{b, a, c} {
		untilMoved(t, s, "worker")
		untilMoved(t, s, "bound")
		if now := s.owner("worker"); now != owner {
			t.Errorf("worker is of %s, and was of %s", now, owner)
		}
	}
	c.end()
	b.end()
	a.end()
}

// A server of a cluster that ends says for which turns it waits: its own, and not those of other machines.
func TestClusterShutdown(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	b.createIn("worker", shared)
	asked := began(t, a, b, "long")
	cmd := exec.Command(filepath.Join(programs, "nexus"), "shutdown", "--home", c.home)
	if said, err := cmd.CombinedOutput(); err != nil || string(said) != "the server has ended\n" {
		t.Errorf("shutdown of a machine without agents: %v, %s", err, said)
	}
	c.wait()
	if answer := a.call("/agent/worker", "cancel", `{"request_id":"long"}`); !gjson.Get(answer, "result.cancelled").Bool() {
		t.Errorf("the turn at another machine: %s", answer)
	}
	<-asked
	b.end()
	a.end()
}

// A machine that stands still for longer than the others wait finds, when it goes on, that its agents are others'. Nothing that it had begun counts.
func TestClusterFrozen(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	b.createIn("worker", shared)
	if answer := b.send("worker", "My name is Alice"); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	a.createIn("other", shared)
	if answer := a.send("other", "My name is Alice"); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	for _, agent := range []string{"gone", "saved"} {
		b.createIn(agent, shared)
		if answer := b.send(agent, "My name is Alice"); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
	}
	b.call("/", "destroy_agent", `{"agent_id":"saved"}`) // its session stays
	answer := began(t, b, b, "cut")
	engine, err := b.engine()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{b.cmd.Process.Pid, engine} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	untilMoved(t, a, "worker")
	for _, agent := range []string{"gone", "saved"} {
		untilMoved(t, a, agent)
		a.call("/", "destroy_agent", fmt.Sprintf(`{"agent_id":%q}`, agent))
		if answer := a.call("/", "delete_session", fmt.Sprintf(`{"session_name":%q}`, agent)); !gjson.Get(answer, "result.deleted").Bool() {
			t.Errorf("%s is not deleted: %s", agent, answer)
		}
	}
	for _, pid := range []int{engine, b.cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if answer := <-answer; gjson.Get(answer, "result").Exists() || gjson.Get(answer, "error.data.type").Str != "NODE_UNREACHABLE" {
		t.Errorf("a machine that has lost the agent says how its turn ended: %s", answer)
	}
	for _, agent := range []string{"gone", "saved"} {
		eventually(t, agent+" is gone everywhere", func() (none struct{}, err error) {
			for _, s := range []*live{b, a, c} {
				if answer := s.call("/agent/"+agent, "get_messages", `{}`); gjson.Get(answer, "error.data.type").Str != "AGENT_NOT_FOUND" {
					return none, errors.New(answer)
				}
			}
			return none, nil
		})
	}
	for _, s := range []*live{b, a, c} {
		untilMoved(t, s, "other")
		if of := s.owner("other"); of != "a" {
			t.Errorf("who stood still has taken an agent of a machine that did not: %s has it", of)
		}
		untilMoved(t, s, "worker")
		if answer := s.call("/agent/worker", "send", `{"content":"count to 100000","request_id":"cut"}`); gjson.Get(answer, "error.data.type").Str != "CHILD_CRASHED" {
			t.Errorf("the turn that was cut off: %s", answer)
		}
	}
	if running, err := exec.Command("pgrep", "-P", fmt.Sprint(b.cmd.Process.Pid), "nexus-child").Output(); err == nil && strings.Count(string(running), "\n") > 1 {
		t.Errorf("the machine that is back has processes of agents: %s", running) // one is a spare
	}
	c.end()
	b.end()
	a.end()
}

// An agent that was created to go on without its directory does so when its machine is lost: in an empty one of its own, in which alone it may work. Its model is
// told once, list_agents and list_sessions say so, and the machine that is back does not take it.
func TestClusterCwdLost(t *testing.T) {
	t.Parallel()
	_, a, b, c := farm(t)
	own := t.TempDir()
	if answer := b.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"worker","cwd":%q,"cwd_lost":"fresh","preset":"trusted"}`, own)); gjson.Get(answer, "result.agent_id").Str != "worker" {
		t.Fatal(answer)
	}
	if answer := b.send("worker", "My name is Alice"); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	if answer := b.call("/agent/worker", "send", `{"content":"write notes.txt: some"}`); gjson.Get(answer, "error").Exists() {
		t.Fatal(answer)
	}
	if answer := b.call("/", "list_agents", `{}`); gjson.Get(answer, "result.agents.#(agent_id==worker).cwd_lost").Str != "fresh" {
		t.Errorf("the agent is %s", answer)
	}
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.cmd.Wait() // that it was killed
	untilMoved(t, a, "worker")
	agent := gjson.Get(a.call("/", "list_agents", `{}`), "result.agents.#(agent_id==worker)")
	cwd := agent.Get("cwd").Str
	if agent.Get("lost_cwd.cwd").Str != own || agent.Get("lost_cwd.node").Str != "b" || agent.Get("cwd_lost").Str != "fresh" {
		t.Errorf("it is %s", agent.Raw)
	}
	if info, err := os.Stat(cwd); err != nil || info.Mode().Perm() != 0o700 || !strings.Contains(cwd, "/work/worker-") {
		t.Errorf("it works in %s: %v, %v", cwd, info, err)
	}
	told := gjson.Get(a.call("/agent/worker", "get_messages", `{}`), "result.messages.#(source==nexus)#")
	if told.Get("#").Int() != 1 || !strings.Contains(told.Get("0.content").Str, own+" with it") || !strings.Contains(told.Get("0.content").Str, filepath.Join(own, "notes.txt")+".") {
		t.Errorf("its model is told: %s", told.Raw)
	}
	t.Log(told.Raw)
	for path, may := range map[string]bool{filepath.Join(cwd, "again.txt"): true, filepath.Join(own, "again.txt"): false} {
		answer := a.send("worker", "write "+path+": more")
		if _, err := os.Stat(path); (err == nil) != may {
			t.Errorf("%s is written: %v, %s", path, err, answer)
		}
	}
	b.again()
	b.untilNodes("a up, b up, c up")
	untilMoved(t, b, "worker")
	if of := b.owner("worker"); of == "b" {
		t.Error("the machine that is back has taken the agent")
	}
	for _, s := range []*live{c, b, a} {
		s.end()
	}
}

// A server that stands still while its engine goes on is lost to the others, and the names of its temporary agents are free. When it goes on, it ends these agents:
// no machine lists one that another machine has, or that nobody reaches.
func TestClusterTemporary(t *testing.T) {
	t.Parallel()
	_, a, b, c := farm(t)
	for _, agent := range []string{".free", ".taken"} {
		if answer := b.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q}`, agent)); gjson.Get(answer, "result.agent_id").Str != agent {
			t.Fatal(answer)
		}
		if answer := a.send(agent, "My name is Alice"); !strings.Contains(answer, "Alice") {
			t.Fatal(answer)
		}
	}
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the names are free", func() (none struct{}, err error) {
		for _, agent := range []string{".free", ".taken"} {
			if answer := a.call("/agent/"+agent, "get_messages", `{}`); gjson.Get(answer, "error.data.type").Str != "AGENT_NOT_FOUND" {
				return none, errors.New(answer)
			}
		}
		return none, nil
	})
	eventually(t, "another machine has the name", func() (none struct{}, err error) {
		if answer := c.call("/", "create_agent", `{"agent_id":".taken"}`); gjson.Get(answer, "result.agent_id").Str != ".taken" {
			err = errors.New(answer)
		}
		return none, err
	})
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*live{a, b, c} {
		eventually(t, "each name is of one machine", func() (none struct{}, err error) {
			answer := s.call("/", "list_agents", `{}`)
			if got := gjson.Get(answer, "result.agents.#.node").Raw; got != `["c"]` || gjson.Get(answer, "result.unreachable_nodes").Exists() {
				err = errors.New(answer)
			}
			return none, err
		})
	}
	if answer := b.send(".taken", "What is my name?"); strings.Contains(answer, "Alice") {
		t.Errorf("the agent of the machine that stood still answers: %s", answer)
	}
	if answer := b.call("/", "create_agent", `{"agent_id":".free"}`); gjson.Get(answer, "result.agent_id").Str != ".free" {
		t.Errorf("a name that is free: %s", answer)
	}
	c.end()
	b.end()
	a.end()
}
