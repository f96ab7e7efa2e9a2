//go:build unix

package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nexus.internal/bridge/auth"
)

// A pipe in the place of the key file holds up nobody, and gives no key.
func TestAttackPipeForAKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.key")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := auth.Read(path)
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for somebody who writes")
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil { // lets it go
			f.Close()
		}
		<-read
	}
}

// A link that is put where the new key is about to be written is not followed.
func TestAttackLinkForANewKey(t *testing.T) {
	home := t.TempDir()
	path, victim := auth.KeyPath(home, 1), filepath.Join(t.TempDir(), "victim")
	write(t, victim, "mine", 0o600)
	temp := path + ".new"
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Symlink(victim, temp) // mostly there is one
			}
		}
	}()
	for range 200 {
		_, _ = auth.Create(path) // it may find the link
		if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
			t.Errorf("the file that a link leads to has %d other bytes, %v", len(text), err)
			break
		}
	}
	close(stop)
	<-stopped
}

// The mode of a key file is what it must be under any umask.
func TestKeyFileModeUnderUmask(t *testing.T) {
	path := auth.KeyPath(t.TempDir(), 1)
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	before := syscall.Umask(0o377)
	_, err := auth.Create(path)
	syscall.Umask(before)
	if err != nil {
		t.Fatal(err)
	}
	wantMode(t, path, 0o600)
}

// A key file that somebody else may have put there is not used: it would lead whoever
// uses it to that one's server.
func TestAttackAnothersKeyFile(t *testing.T) {
	home := t.TempDir()
	path := auth.KeyPath(home, 9000)
	write(t, path, "nxk_abc\n", 0o600)
	find := func() error {
		_, _, err := auth.Discover(auth.Lookup{Home: home, Port: 9000})
		return err
	}
	for _, mode := range []os.FileMode{0o770, 0o702, 0o777 | os.ModeSticky} {
		if err := os.Chmod(home, mode); err != nil {
			t.Fatal(err)
		}
		if err := find(); err == nil || !strings.Contains(err.Error(), "others may put key files there") {
			t.Errorf("in a home of mode %v: %v", mode, err)
		}
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := find(); err != nil {
		t.Errorf("in a home that others may read: %v", err)
	}
	if os.Geteuid() != 0 {
		return // who cannot give files away
	}
	for _, given := range []string{path, home} {
		if err := os.Chown(given, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if err := find(); err == nil || !strings.Contains(err.Error(), "another user's") || !strings.Contains(err.Error(), "run this as its owner (sudo -u '#12345' …)") {
			t.Errorf("%s is another user's: %v", filepath.Base(given), err)
		}
		if err := os.Chown(given, 0, -1); err != nil {
			t.Fatal(err)
		}
	}
}
