package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// undumpable keeps other processes of the same user from reading this one's
// memory and first environment, where a key may stand.
func undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect the key: %w", err)
	}
	return nil
}
