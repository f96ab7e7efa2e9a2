//go:build !unix

package homelock

import (
	"errors"
	"os"
)

var errNoLock = errors.New("locks are not supported on this system")

func wait(*os.File) error             { return errNoLock }
func record(*os.File) error           { return nil }
func recorded(*os.File) (bool, error) { return false, nil }
