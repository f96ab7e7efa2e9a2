package main

import (
	"math"

	"golang.org/x/sys/unix"
)

// roomIn is how many bytes and files our user may still write where a directory lies.
func roomIn(dir string) (bytes, files uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	files = uint64(s.Ffree) //nolint:unconvert // of other types on other systems
	if s.Files == 0 {       // there is no such bound, as on btrfs
		files = math.MaxUint64
	}
	return uint64(s.Bavail) * uint64(s.Bsize), files, nil //nolint:unconvert // likewise
}

// limitOfFiles is how many files this process may have open; 0 if that is not known.
func limitOfFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // signed on some systems
}
