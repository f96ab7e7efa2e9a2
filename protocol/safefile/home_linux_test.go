package safefile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/safefile"
)

// A home that our user may not enter, as root's or one of its own that is closed, is named,
// and so is what to do.
func TestCheckHomeThatIsClosed(t *testing.T) {
	top := t.TempDir()
	home := filepath.Join(top, "home")
	if err := os.Mkdir(home, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(top), top} { // for the user that does not override modes
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // which ends with the goroutine
		if os.Geteuid() == 0 {
			_ = unix.Setfsuid(65534) // looks at files as somebody whom modes bind
		}
		failed <- safefile.CheckHome(home)
	}()
	want := fmt.Sprintf("home %s (mode 0600) is not open to user %d: choose another home (--home, NEXUS_HOME)", home, os.Geteuid())
	if err := <-failed; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
