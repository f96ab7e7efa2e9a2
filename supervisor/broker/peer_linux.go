package broker

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel which process connected. The pid is as we see it,
// whatever namespace the process lives in.
func peerOf(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, fmt.Errorf("read the peer of a socket: %w", err)
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return peer{}, fmt.Errorf("read the peer of a socket: %w", err)
	}
	return peer{pid: int(cred.Pid), uid: int(cred.Uid)}, nil
}
