//go:build !linux

package file

import (
	"os"
	"path/filepath"
)

// location is where an open file is by its name. Whoever moves links about
// meanwhile can deceive it within the directory that was opened, though not
// beyond that.
func location(f *os.File) (string, error) { return filepath.EvalSymlinks(f.Name()) }
