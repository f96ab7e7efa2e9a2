//go:build unix

package audit

import (
	"os"
	"syscall"
)

// openFlags follow no link and never wait for the other end of a pipe. The end of
// the file is read.
const openFlags = os.O_RDWR | os.O_CREATE | os.O_APPEND | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
