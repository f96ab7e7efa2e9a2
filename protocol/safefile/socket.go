package safefile

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// maxSocketPath is what every system takes as the path of a unix socket, in
// bytes (108 with a NUL on Linux, 104 on BSD).
const maxSocketPath = 103

// SocketPath gives f a name of the socket at path that is short enough to bind
// or connect it by: path itself, or one below /proc that is valid while f runs
// (Linux). Elsewhere a path of more than 103 bytes is an error.
func SocketPath(path string, f func(short string) error) error {
	if len(path) <= maxSocketPath {
		return f(path)
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the path of the socket %s has %d bytes, %d is the most: choose a home with a shorter path", path, len(path), maxSocketPath)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path))
}
