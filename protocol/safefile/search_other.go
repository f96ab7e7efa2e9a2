//go:build !linux

package safefile

import "golang.org/x/sys/unix"

// search opens a directory for looking up names in it, which needs no right to read it.
const search = unix.O_SEARCH
