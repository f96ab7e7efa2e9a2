package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// roomForThreads says why this process may not make n threads more, as far as it
// can see: what is hidden from it, or bounds it otherwise (a cgroup), it does not
// know, and then there seems to be room.
func roomForThreads(n int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil || unboundedThreads() {
		return nil
	}
	if have := threadsOf(os.Getuid()); limit.Cur < uint64(have+n) {
		return fmt.Errorf("there may be %d processes and threads of this user (ulimit -u), and %d are there: nexus needs %d more", limit.Cur, have, n)
	}
	return nil
}

// unboundedThreads reports whether the kernel may take no heed of the limit for
// this process: root, and who has one of two capabilities.
func unboundedThreads() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return true
	}
	return os.Getuid() == 0 || sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE|1<<unix.CAP_SYS_ADMIN) != 0
}

// threadsOf counts the threads of a user's processes that can be seen.
func threadsOf(uid int) int {
	paths, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is good
	total := 0
	for _, path := range paths {
		status, _ := proctree.ReadFile(path) // "" for one that has ended, or that hides it
		owner, threads := -1, 0
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			switch name {
			case "Uid": // the real one comes first
				_, _ = fmt.Sscan(value, &owner) // what is no number is nobody's
			case "Threads":
				_, _ = fmt.Sscan(value, &threads)
			}
		}
		if owner == uid {
			total += threads
		}
	}
	return total
}
