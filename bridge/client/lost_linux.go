package client

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lostAfter has a connection end when what was sent is not acknowledged for so long: the system would wait for a quarter of an hour for
// a machine that is off.
func lostAfter(d time.Duration, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
	})
	if err != nil {
		return err
	}
	return failed
}
