//go:build !unix

package sessions

import (
	"os"

	"nexus.internal/protocol/safefile"
)

func lock(*os.File) error { return nil }

func lockFile(path string) (*os.File, error) { return safefile.Open(path, os.O_RDWR|os.O_CREATE) }

// letGo closes the file.
func letGo(f *os.File) { _ = f.Close() }
