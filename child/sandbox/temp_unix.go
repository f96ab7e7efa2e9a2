//go:build unix

package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// newTemp is how long a directory may be there before its warden has locked it.
const newTemp = time.Minute

// holdTemp locks the program's directory as long as this process lives, so that
// nobody takes it for one of a warden that was killed. That it cannot be locked
// is no matter but to sweepTemp.
func holdTemp(dir string) {
	if fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	}
}

// sweepTemp removes the directories in base of wardens that were killed: those
// of this user that nobody holds.
func sweepTemp(base string) {
	entries, _ := os.ReadDir(base) // those that it could read
	for _, entry := range entries {
		if entry.IsDir() && strings.HasPrefix(entry.Name(), tempPrefix) {
			sweep(filepath.Join(base, entry.Name()))
		}
	}
}

func sweep(dir string) {
	file, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !abandoned(info) || unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	removeAll(dir)
}

// abandoned reports whether a directory is ours and not a new one.
func abandoned(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid() && time.Since(info.ModTime()) > newTemp
}
