//go:build unix

package auth_test

import (
	"os"
	"path/filepath"
	"strconv"
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
		if err == nil || !strings.Contains(err.Error(), "plain file") {
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
	temp := path + "." + strconv.Itoa(os.Getpid()) + ".new"
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
