package httpd

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// resetKeepsAnswers says that a client still reads what its system has received before a
// reset, and then the end that was sent before (tcp_recvmsg in net/ipv4/tcp.c).
const resetKeepsAnswers = true

// tcpClose is TCP_CLOSE of linux/tcp_states.h: the connection is gone.
const tcpClose = 7

// delivery reports how many bytes the system of the client has acknowledged, and whether
// these are all that was written, and the end if that was.
func delivery(c net.Conn) (acked uint64, all bool) {
	all = true // of a connection that is closed
	one, ok := c.(syscall.Conn)
	if !ok {
		return 0, true
	}
	raw, err := one.SyscallConn()
	if err != nil {
		return 0, true
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			acked, all = info.Bytes_acked, info.State == tcpClose || info.Unacked == 0 && info.Notsent_bytes == 0
		}
	})
	return acked, all
}
