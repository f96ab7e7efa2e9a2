//go:build unix

package logfile_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/bridge/logfile"
)

// What somebody put in the place of the log is neither followed nor waited for,
// when it is opened and later; and a mode that lets others read is mended.
func TestPlanted(t *testing.T) {
	dir, err := os.MkdirTemp("", "a") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path, outside := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, plant := range map[string]func() error{
		"link":     func() error { return os.Symlink(outside, path) },
		"dangling": func() error { return os.Symlink(outside+"-not", path) },
		"device":   func() error { return os.Symlink("/dev/full", path) },
		"pipe":     func() error { return unix.Mkfifo(path, 0o600) },
		"folder":   func() error { return os.Mkdir(path, 0o700) },
		"socket": func() error {
			socket, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { socket.Close() })
			}
			return err
		},
	} {
		log := open(t, path)
		if err := errors.Join(os.Remove(path), plant()); err != nil {
			t.Fatal(err)
		}
		if err := log.Write([]byte("x\n")); err == nil {
			t.Errorf("%s: a line was written", what)
		}
		if _, err := logfile.Open(path, logfile.Options{Durable: true}); err == nil {
			t.Errorf("%s: was opened", what)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := log.Write([]byte("y\n")); err != nil || read(t, path) != "y\n" {
			t.Errorf("%s: is gone, and the log has %q, %v", what, read(t, path), err)
		}
		if err := errors.Join(log.Close(), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(outside + "-not"); err == nil || read(t, outside) != "mine\n" {
		t.Error("a link was followed")
	}
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	defer open(t, path).Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Root can open the file of another user, who could read what root writes there. Root alone gives files away: that of anybody else stays the owner's, and is taken.
func TestOfAnotherUser(t *testing.T) {
	owner := os.Geteuid()
	if owner == 0 {
		owner = 12345
	}
	path := filepath.Join(t.TempDir(), "nexus.log")
	log := open(t, path)
	defer log.Close()
	if err := errors.Join(os.WriteFile(path, []byte("theirs\n"), 0o666), os.Chmod(path, 0o666), os.Chown(path, owner, -1)); err != nil {
		t.Fatal(err)
	}
	if owner == os.Geteuid() {
		open(t, path).Close()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || read(t, path) != "theirs\n" {
			t.Errorf("our own: %v, %v", info.Mode(), err)
		}
		return
	}
	want := path + " is another user's: choose another file"
	if _, err := logfile.Open(path, logfile.Options{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("it was opened: %v", err)
	}
	if err := os.Rename(path, path+"-there"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.Write([]byte("ours\n")), os.Rename(path+"-there", path)); err != nil {
		t.Fatal(err)
	}
	if err := log.Write([]byte("x\n")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a line was written to one that came later: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 || read(t, path) != "theirs\n" {
		t.Errorf("it has changed: %v, %v", info.Mode(), err)
	}
}

// A line that there is no room for leaves no part of itself, and the next one has
// room again.
func TestNoRoom(t *testing.T) {
	const inside = "NEXUS_TEST_WITHOUT_ROOM"
	if os.Getenv(inside) == "" { // in a process of its own, as the limit holds for the log of the test, too
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := open(t, path)
	defer log.Close()
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	narrow := limit
	narrow.Cur = 4096
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &narrow); err != nil {
		t.Fatal(err)
	}
	first := log.Write([]byte("first\n"))
	long := log.Write([]byte(strings.Repeat("x", 8192) + "\n"))
	next := log.Write([]byte("next\n"))
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if first != nil || long == nil || next != nil || read(t, path) != "first\nnext\n" {
		t.Errorf("the log has %.40q after %v, %v, %v", read(t, path), first, long, next)
	}
}
