package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// spawn is the spawner's own main. It returns its exit status.
func spawn() int {
	keepDescriptors()
	askForContinue() // a launcher could not ask for it
	err := raiseLoopback()
	if err == nil {
		err = inheritNone() // and what it starts cannot change the network
	}
	if err == nil {
		err = dropAll()
	}
	if err == nil {
		err = proctree.SetUndumpable()
	}
	if err != nil {
		_ = failedAnswer(fmt.Errorf("make a network: %w", err)).send()
		return 2
	}
	if (spawnAnswer{}).send() != nil {
		return 2 // a person tries the argument out
	}
	for {
		data, fds, err := receiveMessage(orderFD)
		if errors.Is(err, io.EOF) {
			return 0
		}
		var r spawnRequest
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			return 2 // it is out of step
		}
		if err := serveSpawn(r, fds); err != nil {
			return 2
		}
	}
}

// serveSpawn answers one request.
func serveSpawn(r spawnRequest, fds []int) error {
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if r.Gate {
		fd, port, err := openGate()
		if err != nil {
			return failedAnswer(err).send()
		}
		defer unix.Close(fd)
		return spawnAnswer{Port: port}.send(fd)
	}
	files := make([]uintptr, len(fds))
	for i, fd := range fds {
		files[i] = uintptr(fd)
	}
	// It is the child of whoever started us, as all reapers are. What it asks of the kernel for
	// the death of its parent it asks for itself, as it would here be for ours.
	pid, err := syscall.ForkExec(executable(), []string{os.Args[0], reaperArg}, &syscall.ProcAttr{
		Dir: r.Dir, Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_PARENT},
	})
	if err != nil {
		return failedAnswer(fmt.Errorf("start the reaper: %w", err)).send()
	}
	return spawnAnswer{PID: pid}.send()
}

// openGate makes a listening socket in the network of this process.
func openGate() (fd, port int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	err = errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, gateBacklog))
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, 0, fmt.Errorf("listen: %w", err)
	}
	return fd, at.(*unix.SockaddrInet4).Port, nil //nolint:forcetypeassert // it was bound so
}

// raiseLoopback switches the loopback of this process's network on. It takes CAP_NET_ADMIN over
// the network.
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

// ownNetwork is the name of this process's network; "" if it cannot be told.
func ownNetwork() string {
	name, _ := os.Readlink("/proc/self/ns/net")
	return name
}
