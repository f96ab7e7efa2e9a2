//go:build !linux

package journal

import "os"

// syncData puts the file's content on the disk.
func syncData(f *os.File) error { return f.Sync() }
