//go:build unix

package auth

import (
	"os"
	"syscall"
)

// openFlags follow no link and never wait for the other end of a pipe.
const openFlags = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
