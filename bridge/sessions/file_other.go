//go:build !unix

package sessions

import "os"

func openFile(path string) (*os.File, error) { return os.Open(path) }

func lock(*os.File) error { return nil }

func lockFile(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) }
