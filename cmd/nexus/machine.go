package main

import "golang.org/x/sys/unix"

// roomIn is how many bytes our user may still write where a directory lies.
func roomIn(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil //nolint:unconvert // of other types on other systems
}

// limitOfFiles is how many files this process may have open; 0 if that is not known.
func limitOfFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // signed on some systems
}
