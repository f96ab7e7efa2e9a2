package main

import (
	"syscall"

	"nexus.internal/bridge"
)

// maxStrangers is how many connections without a key may be open: at most a
// quarter of the files that this process may have open. Go has raised that to
// what the system lets it have.
func maxStrangers() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return bridge.DefaultMaxStrangers
	}
	return int(max(1, min(bridge.DefaultMaxStrangers, files.Cur/4)))
}
