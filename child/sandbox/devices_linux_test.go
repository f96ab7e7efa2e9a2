package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// devices says which of the devices are there and may be opened, also if that fails.
func devices(paths []string) string {
	var says []string
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == nil {
			unix.Close(fd)
		}
		if err != unix.EACCES && err != unix.ENOENT {
			says = append(says, filepath.Base(path))
		}
	}
	return strings.Join(says, " ")
}

// someDevices are devices that all programs need, and others: one from which much can
// be read, one that makes terminals, and what holds file systems. In a view there are
// also those that root has put in other places.
func someDevices(base, how string) []string {
	paths := []string{"/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero", "/dev/kmsg", "/dev/ptmx"}
	if how == "views" {
		paths = append(paths, filepath.Join(base, "work", "disk"), filepath.Join(base, "work", "memory"), filepath.Join(base, "beside", "memory"))
	}
	all, _ := filepath.Glob("/dev/*")
	for _, path := range all {
		if info, err := os.Stat(path); err == nil && info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice {
			paths = append(paths, path)
		}
	}
	return paths
}
