package main_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"nexus.internal/bridge/homelock"
)

// Servers of several homes that are started at once, for verbs without a port, each get a port: one that another server gets first is
// no reason to fail.
func TestHomesThatStartAtOnce(t *testing.T) {
	var work sync.WaitGroup
	for i := range 4 {
		home := filepath.Join(t.TempDir(), "home")
		t.Cleanup(func() {
			if s, err := homelock.Find(home); err == nil && s.Runs {
				_ = syscall.Kill(s.PID, syscall.SIGKILL) // it may have ended since
			}
		})
		work.Go(func() {
			run := func(args ...string) {
				cmd := exec.Command(filepath.Join(programs, "nexus"), args...)
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NEXUS_HOME=" + home}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("home %d: %q: %v, %s", i, args, err, out)
				}
			}
			run("create", fmt.Sprint("agent", i))
			run("shutdown")
		})
	}
	work.Wait()
}

// A server that was refused its port by one that has ended since is started again.
func TestPortThatIsFreeAgain(t *testing.T) {
	t.Parallel()
	dir, home := t.TempDir(), filepath.Join(t.TempDir(), "home")
	script := `#!/bin/sh
case "$*" in
(serve*) if mkdir "$0.once"; then echo "nexus: another program uses port $2; choose another port, or 0 for a free one" >&2; exit 1; fi;;
esac
exec ` + filepath.Join(programs, "nexus") + ` "$@"`
	if err := os.WriteFile(filepath.Join(dir, "nexus"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(programs, "nexus-rpc"), filepath.Join(dir, "nexus-rpc")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"create", "a"}, {"shutdown"}} {
		cmd := exec.Command(filepath.Join(dir, "nexus-rpc"), args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NEXUS_HOME=" + home}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "nexus.once")); err != nil {
		t.Error(err)
	}
}

// What to do about a server that stands still is said by each who meets it: its process, and how to end that.
func TestServerThatStandsStill(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kill := fmt.Sprintf("end it with kill %d, or kill -9 %[1]d if it stays", s.cmd.Process.Pid)
	for _, args := range [][]string{{"serve", at.Port()}, {"serve", "0"}, {"list"}, {"shutdown"}, {"doctor"}} {
		_, err := s.nexus(args...)
		if args[0] == "doctor" {
			out, _ := exec.Command(filepath.Join(programs, "nexus"), "doctor", "--home", s.home).CombinedOutput() // it fails
			err = errors.New(string(out))
		} else if ended, ok := errors.AsType[*exec.ExitError](err); ok {
			err = errors.New(string(ended.Stderr))
		}
		if err == nil || !strings.Contains(err.Error(), kill) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.end()
}
