package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A child that has a key, or the ear of a broker that has, keeps its memory and
// first environment to itself: the kernel gives its files in /proc to root. The
// child has a group or a user of its own here, so that this makes a difference.
func TestAChildWithAKeyIsNotDumpable(t *testing.T) {
	home := t.TempDir()
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		gid = 65534
	}
	tests := []struct {
		name      string
		env, args []string
		dumpable  bool
	}{
		{name: "no key", dumpable: true},
		{name: "a key", env: []string{"OPENAI_API_KEY=secret"}},
		{name: "a key that is not for its model", env: []string{"ANTHROPIC_API_KEY=secret"}, args: []string{"--model", "offline"}},
		{name: "a broker", args: []string{"--model-socket", filepath.Join(home, "socket")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := command(t, home, tt.env, tt.args...)
			if uid == 0 { // all may still be read and started, as root
				p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Gid: uint32(gid), NoSetGroups: true}}
			}
			p.start()
			info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", p.cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			owner := info.Sys().(*syscall.Stat_t)
			got, own, root := [2]int{int(owner.Uid), int(owner.Gid)}, [2]int{uid, gid}, [2]int{}
			if want := map[bool][2]int{true: own, false: root}[tt.dumpable]; got != want {
				t.Errorf("its environment belongs to %v, want %v", got, want)
			}
			p.stdin.Close()
			if status := p.wait(); status != 0 {
				t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
			}
		})
	}
}
