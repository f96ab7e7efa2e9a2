//go:build !linux

package journal

import "os"

// SyncData puts the file's content on the disk.
func SyncData(f *os.File) error { return f.Sync() }
