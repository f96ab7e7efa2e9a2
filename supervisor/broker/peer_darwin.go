package broker

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel which process connected.
func peerOf(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, fmt.Errorf("read the peer of a socket: %w", err)
	}
	var p peer
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err != nil {
			failed = err
			return
		}
		p.uid = int(cred.Uid)
		p.pid, failed = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return peer{}, fmt.Errorf("read the peer of a socket: %w", err)
	}
	return p, nil
}
