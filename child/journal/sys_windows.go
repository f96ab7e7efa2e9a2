package journal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// openFile opens the file itself: a link is not followed.
func openFile(path string, flags int) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	return os.OpenFile(path, flags, 0o600)
}

// lock takes the file for this process, without waiting.
func lock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	// One byte far behind the end: Windows locks forbid reading what they cover.
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrInUse
	}
	return err
}

// syncDir does nothing: Windows has no such thing.
func syncDir(string) error { return nil }
