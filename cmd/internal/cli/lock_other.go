//go:build !unix

package cli

import (
	"errors"
	"os"
)

var errNoLock = errors.New("locks are not supported on this system")

func takeLock(*os.File) error  { return nil }
func awaitLock(*os.File) error { return errNoLock }
