package proctree

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Open opens a file of the kernel (/proc, cgroups). A process of the file's owner may
// hold a lease on it (fcntl F_SETLEASE), which would keep the opener waiting for 45 s: then
// Open fails at once, and [Leased] tells.
func Open(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|syscall.O_NONBLOCK, 0)
}

// ReadFile reads a file as Open opens it.
func ReadFile(path string) ([]byte, error) {
	file, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// Leased reports whether an error says that a lease keeps a file from being opened.
func Leased(err error) bool { return errors.Is(err, syscall.EAGAIN) }
