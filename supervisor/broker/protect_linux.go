package broker

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Protect keeps other processes of the same user, tools of agents among them,
// from reading this process's memory and its first environment, where the keys
// are. It does nothing on other systems. Root may read them all the same.
func Protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect the keys: %w", err)
	}
	return nil
}
