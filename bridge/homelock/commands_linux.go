package homelock

import "golang.org/x/sys/unix"

// Locks of the open file: another descriptor of the same process neither has them nor
// gives them up when it is closed.
const (
	setLock = unix.F_OFD_SETLK
	getLock = unix.F_OFD_GETLK
)
