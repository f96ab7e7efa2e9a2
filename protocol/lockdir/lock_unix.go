//go:build unix

package lockdir

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lock locks a file until it is closed; false if another process has it.
func lock(file *os.File) bool {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// owned reports whether a file is ours.
func owned(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
