package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/sessions"
)

// inNamespace tells the test that it is root in a user namespace of its own.
const inNamespace = "NEXUS_TEST_IN_NAMESPACE"

// The disk of the home fills up: what cannot be saved is told, nothing that was
// answered before is lost, and with room again all goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 && os.Getenv(inNamespace) == "" {
		asRootOfItsOwn(t)
		return
	}
	f := newFaulty(t, onSmallDisk(t, 2))
	f.ask("/agent/well", "send", `{"content":"My name is Alice"}`)
	grants := gjson.Get(f.ask("/", "create_key", `{"scope":"agent","agent_id":"well","may_grant":true}`), "result.key").Str
	pid, before := f.pid("well"), f.holdings()
	filler := filepath.Join(f.home, "filler")
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}

	full := "no space left on device"
	status, answer := f.over(http.MethodGet, "/readyz", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(gjson.Get(answer, "checks.home").Str, full) {
		t.Errorf("readyz: HTTP %d %s", status, answer)
	}
	run := `{"request_id":"run","agents":["well"],"plan":{"tasks":[{"id":"a","type":"testing","description":"x"}]}}`
	f.wantNamed(f.ask("/", "run_plan", run), "NOT_RECORDED", full)
	if _, err := os.Lstat(filepath.Join(f.home, "plans", "run.jsonl")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a record is left: %v", err)
	}
	long := `{"content":"` + strings.Repeat("x", 8<<10) + `"}` // a page of the disk that was begun takes a short one
	for range 3 {
		f.wantNamed(f.ask("/", "create_agent", `{"agent_id":"ill"}`), "START_FAILED", full)
		answer := f.ask("/agent/well", "send", long)
		if gjson.Get(answer, "error.data.type").Str != "NOT_RECORDED" { // there was room for that it was accepted
			f.wantNamed(answer, "EXECUTION_ERROR", full)
		}
		if status, answer := f.over(http.MethodGet, "/healthz", ""); status != http.StatusOK {
			t.Errorf("healthz: HTTP %d %s", status, answer)
		}
	}
	// What changes an agent says so, too, and what it takes from the agent holds at once.
	blocked := `"blocked_paths":["` + strings.Repeat("/x", 2000) + `"]`
	for method, params := range map[string]string{
		"set_model": `{"model":"offline"}`, "set_system_prompt": `{"system_prompt":"` + strings.Repeat("x", 8<<10) + `"}`,
		"update_context":  `{"action":"add","context_type":"state","data":{"key":"k","value":"` + strings.Repeat("x", 8<<10) + `"}}`,
		"set_permissions": `{"preset":"sandboxed",` + blocked + `}`,
	} {
		if answer := f.ask("/agent/well", method, params); method != "set_model" || gjson.Get(answer, "error").Exists() { // a page that was begun takes a short one
			f.wantNamed(answer, "STORAGE_FULL", full)
		}
	}
	if answer := f.ask("/agent/well", "get_permissions", "{}"); gjson.Get(answer, "result.preset").Str != "sandboxed" {
		t.Errorf("the narrowing does not hold: %s", answer)
	}
	f.wantNamed(f.ask("/agent/well", "set_permissions", `{"preset":"trusted",`+blocked+`}`), "STORAGE_FULL", full)
	if answer := f.ask("/agent/well", "get_permissions", "{}"); gjson.Get(answer, "result.preset").Str != "sandboxed" {
		t.Errorf("what could not be saved widened it: %s", answer)
	}
	// A copy can do no more than the agent.
	clone := `{"src_session":"well","dest_session":"copy"}`
	f.wantNamed(f.ask("/", "clone_session", clone), "STORAGE_FULL", full)
	f.wantNarrowedBackup()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	// The grant is narrowed as well, and stays so for the agent's next process, whose
	// session says more.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.ask("/agent/well", "send", `{"content":"hello"}`)
	owner := f.key
	f.key = grants
	answer = f.ask("/agent/well", "set_permissions", `{"preset":"trusted",`+blocked+`}`)
	if gjson.Get(answer, "error.data.type").Str != "NOT_PERMITTED" {
		t.Errorf("back to what was granted before: %s", answer)
	}
	f.key = owner
	f.ask("/", "clone_session", clone)
	if answer := f.ask("/", "list_sessions", "{}"); gjson.Get(answer, `result.sessions.#(name=="copy").permission_level`).Str != "sandboxed" {
		t.Errorf("the copy of an agent that is sandboxed: %s", answer)
	}
	f.ask("/", "delete_session", `{"session_name":"copy"}`)
	if status, answer := f.over(http.MethodGet, "/readyz", ""); status != http.StatusOK {
		t.Errorf("readyz: HTTP %d %s", status, answer)
	}
	f.well()
	if answer := f.ask("/agent/well", "send", `{"content":"What is my name?"}`); !strings.Contains(gjson.Get(answer, "result.content").Str, "Alice") {
		t.Errorf("what was said before the disk was full: %s", answer)
	}
	if answer := f.ask("/", "run_plan", run); gjson.Get(answer, "result.tasks.0.request_id").Str != "run/a" {
		t.Errorf("the run that could not be recorded: %s", answer)
	}
	// With room it is saved with the next turn, so it holds for the next process.
	f.ask("/agent/well", "shutdown", "{}")
	if answer := f.ask("/agent/well", "get_permissions", "{}"); gjson.Get(answer, "result.preset").Str != "sandboxed" {
		t.Errorf("the narrowing was not saved: %s", answer)
	}
	f.wantNothingLeft(before)
	f.create("ill", `{"agent_id":"ill"}`)
	f.end()
	// A server that nobody could reach says why it does not start.
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	out, err := exec.Command(filepath.Join(programs, "nexus"), "serve", "0", "--home", f.home).CombinedOutput()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 1 || !strings.Contains(string(out), f.home) || !strings.Contains(string(out), full) {
		t.Errorf("a start on a full disk: %v: %s", err, out)
	}
	// It starts where a program has filled the disk.
	left := filepath.Join(f.home, "run", "scratch", "left")
	if err := errors.Join(os.MkdirAll(left, 0o700), os.Rename(filler, filepath.Join(left, "filler"))); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd := exec.Command(filepath.Join(programs, "nexus"), "serve", "0", "--home", f.home)
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n') // none if it ends before
	_ = cmd.Process.Signal(syscall.SIGTERM)             // Wait says whether it ended before
	if err := cmd.Wait(); err != nil || !strings.HasPrefix(line, "nexus listening") {
		t.Errorf("a start where a program filled the disk: %v: %s%s", err, line, stderr.String())
	}
}

// wantNarrowedBackup looks that an agent of a restored home is sandboxed, as well is,
// though the session of well says more.
func (f *faulty) wantNarrowedBackup() {
	f.Helper()
	file, restored := filepath.Join(f.dir, "home.tgz"), filepath.Join(f.dir, "restored")
	for _, args := range [][]string{{"backup", file, "--home", f.home}, {"restore", file, "--home", restored}} {
		out, err := exec.Command(filepath.Join(programs, "nexus"), args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), ": 1 session, ") {
			f.Fatalf("%s: %v: %s", args[0], err, out)
		}
	}
	saved, err := sessions.New(restored, nil).Summary("well")
	if err != nil || saved.Settings.Permissions == nil || saved.Settings.Permissions.Preset != "sandboxed" {
		f.Errorf("the backup of a sandboxed agent: %+v, %v", saved.Settings.Permissions, err)
	}
}

// A home on a file system that has become read-only can be saved.
func TestBackupWritesNothing(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv(inNamespace) == "" {
		asRootOfItsOwn(t)
		return
	}
	home, file := t.TempDir(), filepath.Join(t.TempDir(), "home.tgz")
	onSmallDisk(t, 2)(&exec.Cmd{Env: []string{"", "", "NEXUS_HOME=" + home}})
	child := exec.Command(filepath.Join(programs, "nexus-child"), "--session", "s")
	child.Env, child.Stdin = []string{"NEXUS_HOME=" + home}, strings.NewReader(`{"type":"prompt","id":"1","message":"hello"}`+"\n")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := unix.Mount("", home, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(programs, "nexus"), "backup", file, "--home", home).CombinedOutput()
	if err != nil || !strings.Contains(string(out), ": 1 session, ") {
		t.Errorf("%v: %s", err, out)
	}
}

// A server that a verb starts, and that can write not even its log, does not start, and the verb says why.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 && os.Getenv(inNamespace) == "" {
		asRootOfItsOwn(t)
		return
	}
	s := newLive(t, onSmallDisk(t, 1))
	s.end()
	if err := os.WriteFile(filepath.Join(s.home, "filler"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	_, err := s.nexus("list", "--port", freePortOf(t, "127.0.0.1"))
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatalf("nexus list: %v", err)
	}
	if !strings.Contains(string(ended.Stderr), "nothing can be written to its log") || !strings.Contains(string(ended.Stderr), "no space left on device") {
		t.Errorf("%v: %s", err, ended.Stderr)
	}
}

// onSmallDisk gives a server a home on a disk of its own, of so many MiB.
func onSmallDisk(t *testing.T, size int) (prepare func(*exec.Cmd)) {
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr = nil // in a user namespace there is nobody else
		home := strings.TrimPrefix(cmd.Env[2], "NEXUS_HOME=")
		if err := unix.Mount("nexus-test", home, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=700", size)); err != nil {
			t.Fatalf("mount a small disk: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(home, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
}

// asRootOfItsOwn runs the test again where an ordinary user may mount. A machine
// that has no user namespaces for those cannot show it.
func asRootOfItsOwn(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EACCES):
		t.Logf("not done, as there are no user namespaces here: %v", err)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("%v\n%s", err, out)
	}
}
