package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/auth"
)

// On a full disk, changes of sessions and keys say so by one name and change
// nothing, but that a revoked key ends at once: what was there is served, and
// afterwards each of them succeeds.
func TestSessionsOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 && os.Getenv(inNamespace) == "" {
		asRootOfItsOwn(t)
		return
	}
	f := newFaulty(t, onSmallDisk(t, 2))
	filler := filepath.Join(f.home, "filler")
	testUnsaved(f, syscall.ENOSPC, func() {
		if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}, func() {
		// What makes room needs none.
		if answer := f.ask("/", "delete_session", `{"session_name":"spare"}`); !gjson.Get(answer, "result.deleted").Bool() {
			t.Errorf("delete on a full disk: %s", answer)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	})
}

// The same for a home that becomes read-only: one is mounted over it.
func TestSessionsInAReadOnlyHome(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 && os.Getenv(inNamespace) == "" {
		asRootOfItsOwn(t)
		return
	}
	f := newFaulty(t, onSmallDisk(t, 2))
	mounted := false
	unmount := func() {
		if !mounted {
			return
		}
		mounted = false
		if err := unix.Unmount(f.home, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
	testUnsaved(f, syscall.EROFS, func() {
		if err := unix.Mount(f.home, f.home, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		mounted = true
		t.Cleanup(unmount)
		if err := unix.Mount("", f.home, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	}, unmount)
}

// The same for a home that the server may not write.
func TestSessionsInAForbiddenHome(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, nil)
	mode := func(mode os.FileMode) func() {
		return func() {
			for _, dir := range []string{f.home, filepath.Join(f.home, "sessions")} {
				if err := os.Chmod(dir, mode); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	testUnsaved(f, syscall.EACCES, mode(0o500), mode(0o700))
}

// A server is ready if it can save in the home and among the sessions, each of them;
// where it has its lock, nothing need be written.
func TestReadyWhereThingsAreSaved(t *testing.T) {
	f := newFaulty(t, nil)
	for dir, reason := range map[string]string{".": "permission denied", "sessions": "permission denied", "run": ""} {
		path := filepath.Join(f.home, dir)
		if err := os.Chmod(path, 0o500); err != nil {
			t.Fatal(err)
		}
		f.wantReady(reason)
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
		f.wantReady("")
	}
	for _, pattern := range []string{".writable-*", "*/.writable-*"} {
		if left, err := filepath.Glob(filepath.Join(f.home, pattern)); len(left) > 0 || err != nil {
			t.Errorf("left of the questions: %v, %v", left, err)
		}
	}
	f.end()
}

// wantReady wants that GET /readyz says that nothing can be saved for a reason; ""
// for ready.
func (f *faulty) wantReady(reason string) {
	f.Helper()
	want, home := http.StatusServiceUnavailable, "nothing can be saved"
	if reason == "" {
		want, home = http.StatusOK, "ok"
	}
	status, answer := f.over(http.MethodGet, "/readyz", "")
	if got := gjson.Get(answer, "checks.home").Str; status != want || !strings.Contains(got, home) || !strings.Contains(got, reason) {
		f.Errorf("readyz: HTTP %d %s, want %d and %q", status, answer, want, reason)
	}
}

// testUnsaved tries all that is saved between harm and heal.
func testUnsaved(f *faulty, cause syscall.Errno, harm, heal func()) {
	f.Helper()
	reason := cause.Error()
	f.ask("/agent/well", "send", `{"content":"My name is Alice"}`)
	f.create("spare", `{"agent_id":"spare"}`)
	f.ask("/agent/spare", "send", `{"content":"hello"}`)
	f.ask("/", "destroy_agent", `{"agent_id":"spare"}`)
	f.create(".temp", `{"agent_id":".temp"}`)
	f.ask("/", "clone_session", `{"src_session":"well","dest_session":"spare"}`)
	keys := f.ask("/", "list_keys", `{}`) // which are all that are left once another is revoked
	made := gjson.Get(f.ask("/", "create_key", `{"scope":"read"}`), "result")
	sessions := f.ask("/", "list_sessions", `{}`)
	calls := []struct{ method, params, done string }{
		{"clone_session", `{"src_session":"well","dest_session":"copy"}`, "cloned"},
		{"save_session", `{"agent_id":"well","session_name":"saved"}`, "saved"},
		{"save_session", `{"agent_id":".temp","session_name":"kept"}`, "saved"},
		{"rename_session", `{"old_name":"well","new_name":"better"}`, "renamed"},
		{"load_session", `{"session_name":"better","agent_id":"twin"}`, "restored"},
		{"create_key", `{"scope":"read"}`, "key_id"},
		{"rotate_key", `{"grace_s":3600}`, "rotated"},
		{"revoke_key", fmt.Sprintf(`{"key_id":%q}`, made.Get("key_id").Str), "revoked"},
	}
	pid := f.pid("well")
	harm()
	f.wantReady(reason)
	for _, c := range calls {
		if c.method == "rotate_key" && errors.Is(cause, syscall.ENOSPC) { // the file has room for a key already
			answer := f.ask("/", c.method, c.params)
			file := gjson.Get(answer, "result.key_file").Str
			if key, err := auth.Read(file); err != nil || key.ID() != gjson.Get(answer, "result.key_id").Str {
				f.Errorf("rotate_key: %s; %s has the key %s, %v", answer, file, key.ID(), err)
			}
			continue
		}
		f.wantNamed(f.ask("/", c.method, strings.Replace(c.params, `"better","agent_id"`, `"well","agent_id"`, 1)), "NOT_RECORDED", reason)
	}
	if answer := f.ask("/", "validate_code", `{"code":"{}","language":"json"}`); !gjson.Get(answer, "result.valid").Bool() {
		f.Errorf("what is to be saved nowhere: %s", answer)
	}
	if now := f.ask("/", "list_sessions", `{}`); now != sessions {
		f.Errorf("sessions before\n%s\nand now\n%s", sessions, now)
	}
	if now := f.ask("/", "list_keys", `{}`); now != keys {
		f.Errorf("keys without that one\n%s\nand now\n%s", keys, now)
	}
	full := f.key
	f.key = made.Get("key").Str
	if status, answer := f.over(http.MethodGet, "/readyz", ""); status != http.StatusForbidden {
		f.Errorf("a revoked key is good: HTTP %d %s", status, answer)
	}
	f.key = full
	for _, id := range []string{"well", ".temp"} {
		if answer := f.ask("/agent/"+id, "get_messages", `{}`); gjson.Get(answer, "error").Exists() {
			f.Errorf("%s is not served: %s", id, answer)
		}
	}
	if now := f.pid("well"); now != pid {
		f.Errorf("an agent that kept its name was ended: process %d, now %d", pid, now)
	}
	heal()
	f.wantReady("")
	// rotate_key has replaced this key, which makes no others: the new one is in its file, or will be.
	f.key = eventually(f.T, "the new key in its file", func() (string, error) {
		paths, _ := filepath.Glob(filepath.Join(f.home, "server-*.key")) // the pattern is well-formed
		text, err := os.ReadFile(strings.Join(paths, " and "))
		key := strings.TrimSpace(string(text))
		if err == nil && key == f.key {
			err = errors.New("it has the old one")
		}
		return key, err
	})
	for _, c := range calls {
		if answer := f.ask("/", c.method, c.params); !gjson.Get(answer, "result."+c.done).Exists() {
			f.Errorf("%s afterwards: %s", c.method, answer)
		}
	}
	if answer := f.ask("/agent/twin", "send", `{"content":"What is my name?"}`); !strings.Contains(gjson.Get(answer, "result.content").Str, "Alice") {
		f.Errorf("the copy: %s", answer)
	}
	f.end()
}
