package safefile

import (
	"errors"
	"fmt"
	"net"
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
	dir, err := OpenDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path))
}

// ListenSocket makes a unix socket at path for this user alone (0600), which the caller
// removes: closing the listener does not.
func ListenSocket(path string) (net.Listener, error) {
	var ln *net.UnixListener
	err := SocketPath(path, func(short string) (err error) {
		ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // it has another name
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close(), os.Remove(path))
	}
	return ln, nil
}
