package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// gateBacklog is how many connections wait for the gate to take them.
const gateBacklog = 128

// openGate makes the network of this process, which nothing was done to, one in which it finds
// itself and a listening socket at gateAddress. It takes CAP_NET_ADMIN over the network.
func openGate() (fd int, err error) {
	if err := raiseLoopback(); err != nil {
		return -1, fmt.Errorf("switch the loopback on: %w", err)
	}
	at := netip.MustParseAddrPort(gateAddress)
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}), unix.Listen(fd, gateBacklog)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen: %w", err)
	}
	return fd, nil
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// gatePair are the ends of the socket by which the reaper sends that of the gate.
func gatePair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), "gate"), os.NewFile(uintptr(pair[1]), "gate"), nil
}

// sendGate sends the socket of the gate to whoever started us, and keeps nothing of it.
func sendGate(gate int) error {
	if gate < 0 {
		return errors.New("there is none")
	}
	err := unix.Sendmsg(gateFD, []byte{' '}, unix.UnixRights(gate), nil, 0)
	unix.Close(gate)
	unix.Close(gateFD)
	return err
}

// takeSocket receives the socket of the gate, which the reaper has sent before its report.
func takeSocket(from *os.File) (*os.File, error) {
	start, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, size, _, _, err := unix.Recvmsg(int(from.Fd()), start, rights, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("no descriptor has come")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("no descriptor has come")
	}
	return os.NewFile(uintptr(fds[0]), "gate"), nil
}
