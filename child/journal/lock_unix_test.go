//go:build unix

package journal_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/child/journal"
)

// A process that is started while a journal is closed has its descriptor for a moment.
// The session can be opened all the same: it was taken for another process's.
func TestLockOfAProcessThatIsStarted(t *testing.T) {
	o := journal.Options{Dir: t.TempDir(), Name: "s"}
	for name, end := range map[string]func(*journal.Journal) error{"closed": (*journal.Journal).Close, "discarded": (*journal.Journal).Discard} {
		t.Run(name, func(t *testing.T) {
			j, _ := open(t, o)
			inherited, err := unix.Dup(int(j.Locked().Fd()))
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(inherited)
			if err := end(j); err != nil {
				t.Fatal(err)
			}
			again, _ := open(t, o)
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
