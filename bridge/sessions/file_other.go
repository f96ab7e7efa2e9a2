//go:build !unix

package sessions

import "os"

func openFile(path string) (*os.File, error) { return os.Open(path) }

func lock(*os.File) error { return nil }
