package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// nasties are what a tool may leave behind: it starts each of them and stays.
// The storm is a chain of processes that live only to start the next one; it
// ends by itself, should nobody end it.
const nasties = `setsid sleep 1000 &
( ( setsid sleep 1000 & ) & )
sh -c 'trap "" TERM HUP INT; while :; do sleep 1000; done' &
nohup sleep 1000 >/dev/null 2>&1 &
sh -c 'kill -STOP $$' &
setsid sh -c 'n=20000; f() { n=$((n-1)); [ $n -gt 0 ] && f & }; f' &
( setsid sh -c 'trap "" TERM; kill -STOP $PPID; sleep 1000 & wait' & )
trap "" TERM
while :; do sleep 1000; done
`

// lasting is how many of them stay, at least.
const lasting = 8

// users are those that a server is run as: root and an ordinary one, if we may
// choose.
func users() map[string]int {
	if os.Geteuid() != 0 {
		return map[string]int{"user": os.Geteuid()}
	}
	return map[string]int{"root": 0, "user": 65534}
}

// forest is a server with an agent whose tool has started the nasties.
type forest struct {
	*live
	mark  string        // is in the environment of all of them
	tag   uint64        // the first number of the server's tag
	first <-chan string // what the turn of the first agent, wood, comes to
}

func newForest(t *testing.T, uid int) *forest {
	t.Helper()
	f := &forest{}
	f.live = newLive(t, func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--drain-timeout", "100ms")
		runAs(t, cmd, uid)
	})
	f.mark = "NASTY=" + f.cwd
	if err := os.WriteFile(filepath.Join(f.cwd, "nasties"), []byte(nasties), 0o644); err != nil {
		t.Fatal(err)
	}
	f.tag = f.tagOf()
	t.Cleanup(func() {
		for _, pid := range f.left() {
			t.Errorf("process %d was left: %s", pid, describe(pid))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	f.first = f.plant("wood")
	return f
}

// runAs has a server run as somebody, who owns its directories then.
func runAs(t *testing.T, cmd *exec.Cmd, uid int) {
	if uid == os.Geteuid() {
		return
	}
	home := strings.TrimPrefix(cmd.Env[slices.IndexFunc(cmd.Env, func(s string) bool { return strings.HasPrefix(s, "HOME=") })], "HOME=")
	top := filepath.Dir(filepath.Dir(home))
	if within, err := filepath.Rel(os.TempDir(), top); err != nil || within == "." || !filepath.IsLocal(within) {
		t.Fatalf("%s is no directory of a test: it keeps its owner", top) // all in it would change hands
	}
	err := errors.Join(os.Chmod(programs, 0o755), os.Chmod(top, 0o711), filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		return os.Lchown(path, uid, uid)
	}))
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
}

// plant makes an agent whose tool starts the nasties, and returns when they are
// there. The answer of the turn follows; "" if the server is gone.
func (f *forest) plant(agent string) <-chan string {
	f.Helper()
	before := len(f.marked())
	f.create(agent, "{}")
	answer := f.sendAsync(agent, "run "+f.mark+" exec sh nasties")
	eventually(f.T, "the tool starts them", func() (int, error) {
		if n := len(f.marked()) - before; n < lasting {
			return n, fmt.Errorf("%d are there", n)
		}
		return 0, nil
	})
	return answer
}

// tagOf is the tag of the server, which its record is named after.
func (f *forest) tagOf() uint64 {
	f.Helper()
	entries, err := os.ReadDir(filepath.Join(f.home, "run", "trees"))
	if err != nil || len(entries) != 1 {
		f.Fatalf("records %v, %v, want one", entries, err)
	}
	tag, err := strconv.ParseUint(entries[0].Name(), 16, 64)
	if err != nil {
		f.Fatal(err)
	}
	return tag
}

// marked lists the nasties that live.
func (f *forest) marked() []int {
	return processes(func(pid int) bool {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // it is gone
		return bytes.Contains(environ, []byte(f.mark))
	})
}

// left lists all that live of what the server started, by their mark or the
// server's tag, the server itself left out.
func (f *forest) left() []int {
	marked := f.marked()
	return processes(func(pid int) bool {
		var limit unix.Rlimit
		err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit)
		return slices.Contains(marked, pid) || err == nil && limit.Max >= f.tag && limit.Max < f.tag+1<<24 && pid != f.cmd.Process.Pid
	})
}

// none fails if anything is left of what the server started.
func (f *forest) none(when string) {
	f.Helper()
	for _, pid := range f.left() {
		if d := describe(pid); d != "" {
			f.Errorf("%s process %d is left: %s", when, pid, d)
		}
	}
}

// noneSoon is none, in a while.
func (f *forest) noneSoon(when string) {
	f.Helper()
	began := time.Now()
	eventually(f.T, when, func() (int, error) {
		if left := f.left(); len(left) > 0 {
			return 0, fmt.Errorf("%d are left, as %s", len(left), describe(left[0]))
		}
		return 0, nil
	})
	f.Logf("%s: nothing is left after %v", when, time.Since(began).Round(time.Millisecond))
}

// processes lists those that live and are wanted.
func processes(wanted func(pid int) bool) []int {
	pids, err := proctree.All()
	if err != nil {
		panic(err)
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		s, err := proctree.ReadStat(pid)
		return pid == os.Getpid() || err != nil || s.Ended() || !wanted(pid)
	})
}

func describe(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it is gone
	s, err := proctree.ReadStat(pid)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(s.State) + " " + strings.ReplaceAll(string(line), "\x00", " "))
}

// childrenWith are the children of a process whose command lines have a word.
func childrenWith(t *testing.T, parent int, word string) []int {
	return slices.DeleteFunc(childrenOf(t, parent), func(pid int) bool { return !strings.Contains(describe(pid)+" ", " "+word+" ") })
}

// Whatever a tool has started is gone when its agent is.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for name, uid := range users() {
		t.Run(name, func(t *testing.T) {
			f := newForest(t, uid)
			t.Run("of a child that was killed", func(t *testing.T) {
				child := f.pid("wood")
				if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if answer := <-f.first; gjson.Get(answer, "error.data.type").Str != "CHILD_CRASHED" {
					t.Errorf("got %s", answer)
				}
				if left := f.marked(); len(left) > 0 {
					t.Errorf("%d are left, as %s", len(left), describe(left[0]))
				}
			})
			f.plant("copse")
			f.plant("grove")
			t.Run("of an agent that is destroyed", func(t *testing.T) {
				for _, agent := range []string{"copse", "grove", "wood"} {
					if answer := f.call("/", "destroy_agent", fmt.Sprintf(`{"agent_id":%q}`, agent)); !gjson.Get(answer, "result.success").Bool() {
						t.Errorf("destroy %s: %s", agent, answer)
					}
				}
				if left := f.marked(); len(left) > 0 {
					t.Errorf("%d are left, as %s", len(left), describe(left[0]))
				}
			})
			f.plant("wood")
			f.end()
			f.none("after SIGTERM,")
			if records, err := os.ReadDir(filepath.Join(f.home, "run", "trees")); err != nil || len(records) > 0 {
				t.Errorf("records %v, %v, want none", records, err)
			}
		})
	}
}

// Nor is anything left when the server is killed.
func TestNothingIsLeftOfAKilledServer(t *testing.T) {
	t.Parallel()
	for name, uid := range users() {
		t.Run(name, func(t *testing.T) {
			f := newForest(t, uid)
			f.plant("copse")
			if err := f.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = f.cmd.Wait() // it was killed
			f.noneSoon("after SIGKILL")
			f.again()
			f.end()
		})
	}
}

// standsStill says which thread of a process that was stopped has not heard of it yet.
func standsStill(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		stat, gone := os.ReadFile(thread)
		if _, state, _ := strings.Cut(string(stat), ") "); gone == nil && !strings.HasPrefix(state, "T") {
			err = fmt.Errorf("%s: %s", thread, stat)
		}
	}
	return err
}

// What is left when all are killed that should have seen to it, as in a machine
// without memory, is ended by the next server before it is there for anybody.
func TestNextServerSweepsTheHome(t *testing.T) {
	t.Parallel()
	for name, uid := range users() {
		t.Run(name, func(t *testing.T) {
			f := newForest(t, uid)
			child, server := f.pid("wood"), f.cmd.Process.Pid
			watchdogs, reapers := childrenWith(t, server, "__watchdog"), childrenWith(t, child, "__run")
			if len(watchdogs) != 1 || len(reapers) != 1 {
				t.Fatalf("watchdogs %v, reapers %v, want one each", watchdogs, reapers)
			}
			for _, pid := range []int{child, server} { // so that they notice nothing
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				eventually(t, "a thread goes on", func() (any, error) { return nil, standsStill(pid) })
			}
			for _, pid := range []int{reapers[0], watchdogs[0], server} {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			_ = f.cmd.Wait() // it was killed
			if err := awaitEnd(child); err != nil {
				t.Fatalf("the child %v", err)
			}
			if len(f.marked()) == 0 {
				t.Fatal("nothing is left to be swept")
			}
			old := f.tag
			f.again()
			f.none("when the next server is there,")
			if f.tag = f.tagOf(); f.tag == old {
				t.Error("the next server has the tag of the last")
			}
			f.end()
			if !strings.Contains(f.log.String(), "ended what a killed server left") {
				t.Error("the log does not tell of it")
			}
		})
	}
}
