//go:build unix

package owned

import (
	"io/fs"
	"os"
	"syscall"
)

// Ours reports whether a file is that of our user, or root's.
func Ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

// OwnersAlone reports whether nobody but its owner may write a file, or put files into a
// directory.
func OwnersAlone(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 == 0 }
