//go:build !linux

package cli

import "golang.org/x/sys/unix"

// dropTyped drops what was typed at a terminal and not read.
func dropTyped(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, unix.TCIFLUSH) }
