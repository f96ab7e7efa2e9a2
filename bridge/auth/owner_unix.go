//go:build unix

package auth

import (
	"io/fs"
	"os"
	"syscall"
)

// ownOrRoots reports whether a file is that of our user, or root's.
func ownOrRoots(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

// ownersDirectory reports whether nobody but its owner may put files into a directory.
func ownersDirectory(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 == 0 }
