//go:build unix

package plan

import "golang.org/x/sys/unix"

// openFlags open the file itself, and wait for no pipe.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK
