//go:build !linux

package homelock

import "golang.org/x/sys/unix"

// Locks of the process, which gives them up when it closes any descriptor of the file:
// a server opens its lock once.
const (
	setLock = unix.F_SETLK
	getLock = unix.F_GETLK
)
