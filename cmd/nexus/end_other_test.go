//go:build !linux

package main_test

import (
	"errors"
	"syscall"
	"time"
)

// awaitEnd asks until the process is gone: not every system can wait for a
// process that is not a child.
func awaitEnd(pid int) error {
	for began := time.Now(); time.Since(began) < patience; {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return nil
		}
	}
	return errors.New("is still there")
}
