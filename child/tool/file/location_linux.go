package file

import (
	"fmt"
	"os"
	"strconv"
)

// location is where an open file truly is: the kernel's own word, whatever
// became of the names on the way there.
func location(f *os.File) (string, error) {
	path, err := os.Readlink("/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10))
	if err != nil {
		return "", fmt.Errorf("cannot be told where it is, /proc is needed: %w", err)
	}
	return path, nil
}
