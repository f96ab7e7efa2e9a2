package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/supervisor"
)

// A process that is started while a log is closed has its descriptor for a moment.
// The log can be opened all the same: it was taken for another server's.
func TestLockOfAChild(t *testing.T) {
	dir := t.TempDir()
	path := segment(dir, 1)
	s := open(dir)
	defer s.Close()
	for name, end := range map[string]func(supervisor.Records) error{"closed": supervisor.Records.Close, "removed": supervisor.Records.Remove} {
		t.Run(name, func(t *testing.T) {
			log, err := s.Open("a", false)
			if err != nil {
				t.Fatal(err)
			}
			open, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			copies := 0
			for _, one := range open {
				link := filepath.Join("/proc/self/fd", one.Name())
				if to, err := os.Readlink(link); err != nil || to != path {
					continue
				}
				var number int
				for _, digit := range one.Name() {
					number = 10*number + int(digit-'0')
				}
				held, err := unix.Dup(number)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(held)
				copies++
			}
			if copies == 0 {
				t.Fatal("the log is not open")
			}
			if err := end(log); err != nil {
				t.Fatal(err)
			}
			again, err := s.Open("a", false)
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
