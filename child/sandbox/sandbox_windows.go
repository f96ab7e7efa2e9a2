package sandbox

import (
	"fmt"
	"os"
	"syscall"
)

// Supported says why the kernel cannot confine programs; nil if it can. The
// error wraps [ErrUnsupported].
func Supported() error {
	return fmt.Errorf("%w: that takes Linux", ErrUnsupported)
}

// Adopt makes this process the parent of what a killed warden leaves behind.
// This system knows no such thing.
func Adopt() error { return nil }

func killOrphans(map[int]bool) {}

func executable() string { return os.Args[0] }

func wardenAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
