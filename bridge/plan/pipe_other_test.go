//go:build !unix

package plan_test

import "os"

// makePipe makes another thing that is no file.
func makePipe(path string) error { return os.Mkdir(path, 0o700) }
