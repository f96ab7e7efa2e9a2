package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// startSpare starts a spare and waits until it waits.
func startSpare(t *testing.T, home string) *process {
	t.Helper()
	p := command(t, home, nil, "spare")
	if os.Geteuid() == 0 { // so that it makes a difference who owns its files in /proc
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Gid: 65534, NoSetGroups: true}}
	}
	p.startUntil("spare")
	return p
}

// A spare becomes the agent of its first line, and nothing before that: it has no session,
// and keeps its memory and stdin from other processes of the user.
func TestSpare(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	p := startSpare(t, home)
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 0 || owner.Gid != 0 {
		t.Errorf("its descriptors belong to %d:%d", owner.Uid, owner.Gid)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("before it is an agent there are %v, %v in the home", entries, err)
	}
	p.send(fmt.Sprintf(`{"type":"become","args":["--session=a","--system-env"],"dir":%q,"system":"Be brief."}`, dir))
	p.want("type", "ready")
	p.send(`{"type":"get_state","id":"1"}`)
	state := p.want("type", "response")
	if got, err := filepath.EvalSymlinks(dir); err != nil || state.Get("cwd").Str != got {
		t.Errorf("its directory is not %s, %v: %s", got, err, state)
	}
	// As it is saved, which is what a restart goes on with.
	saved, err := os.ReadFile(filepath.Join(home, "sessions", "a.jsonl"))
	if err != nil || !strings.Contains(string(saved), `"system_prompt":"Be brief."`) {
		t.Errorf("its system prompt is not saved: %v\n%s", err, saved)
	}
	p.stdin.Close()
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}

// Nobody would see a rehearsal that fails, but each agent would take longer to be ready. It
// leaves no file, no variable and no goroutine behind.
func TestRehearsal(t *testing.T) {
	before, threads := os.Environ(), runtime.NumGoroutine()
	if err := rehearse(t.Context()); err != nil {
		t.Error(err)
	}
	if after := os.Environ(); !slices.Equal(before, after) {
		t.Errorf("the environment was %q, and is %q", before, after)
	}
	for range 1_000_000 { // one that was joined may not have left yet
		if runtime.NumGoroutine() <= threads {
			break
		}
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > threads {
		buf := make([]byte, 1<<16)
		t.Errorf("there were %d goroutines, and are %d\n%s", threads, now, buf[:runtime.Stack(buf, true)])
	}
	if _, err := os.Lstat("/proc/nexus"); err == nil {
		t.Error("its home exists")
	}
}

// A spare that nobody needs ends; one that is told something else says what is wrong.
func TestSpareEnds(t *testing.T) {
	const become = `{"type":"become","args":["--no-session"]}`
	tests := []struct {
		name   string
		act    func(*process)
		status int
		stderr string // a part of it; "" for none
	}{
		{"at the end of stdin", func(p *process) { p.stdin.Close() }, 0, ""},
		{"when it is told", func(p *process) { _ = p.cmd.Process.Signal(syscall.SIGTERM) }, 0, ""},
		{"at a command", func(p *process) { p.send(`{"type":"ping","id":"1"}`) }, 2, `member "id" is not known`},
		{"at another type", func(p *process) { p.send(`{"type":"grow","args":[]}`) }, 2, `the type is "grow"`},
		{"at an unknown member", func(p *process) { p.send(`{"type":"become","args":[],"env":[]}`) }, 2, `"env"`},
		{"at a command too early", func(p *process) { p.send(become + "\n" + `{"type":"ping","id":"1"}`) }, 2, "commands before it is ready"},
		{"in a directory that is gone", func(p *process) { p.send(`{"type":"become","args":[],"dir":"/proc/nonexistent"}`) }, 2, "chdir /proc/nonexistent"},
		{"with arguments that are wrong", func(p *process) { p.send(`{"type":"become","args":["--depht=1"]}`) }, 2, "--depth"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startSpare(t, t.TempDir())
			tt.act(p)
			status, stderr := p.wait(), p.stderr.String()
			if status != tt.status || !strings.Contains(stderr, tt.stderr) || (tt.stderr == "") != (stderr == "") {
				t.Errorf("exit status %d, want %d; stderr %q, want %q in it", status, tt.status, stderr, tt.stderr)
			}
		})
	}
}
