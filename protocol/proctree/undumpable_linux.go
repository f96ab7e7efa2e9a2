package proctree

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetUndumpable keeps other processes of the same user from reading this process's memory
// and first environment in /proc, from tracing it, and the kernel from dumping its
// core. It holds until exec. Root may read them all the same. It does nothing on
// other systems.
func SetUndumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set PR_SET_DUMPABLE: %w", err)
	}
	return nil
}
