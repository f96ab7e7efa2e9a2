package snapshot

import (
	"io/fs"
	"syscall"
)

// StateOf is the state of a file that info tells of.
func StateOf(info fs.FileInfo) State {
	s := State{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Device, s.Inode = uint64(stat.Dev), stat.Ino //nolint:unconvert // it is signed on some systems
	}
	return s
}
