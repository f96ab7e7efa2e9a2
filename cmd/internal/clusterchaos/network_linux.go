package clusterchaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPacket bounds a packet between machines, in bytes.
	maxPacket = 9000
	// maxQueued is how many packets are on their way from one machine to another; what comes when so many are is lost, as in a switch.
	maxQueued = 2048
	// clusterPort is where each machine is reached by the others, at an address of its own.
	clusterPort = 8766
)

// network is what connects the machines: each is in a network namespace of its own, with one device, whose packets come to us, and go
// on as the links say. Namespaces and devices end with us and the machines, however those end. It is safe for concurrent use.
type network struct {
	spaces  []*namespace
	links   [][]*link // from, to; nil to itself
	running sync.WaitGroup
}

// namespace is the network namespace of one machine.
type namespace struct {
	file   *os.File
	device *os.File // reads and writes one packet at a time
}

// link is the way from one machine to another.
type link struct {
	to    *os.File
	queue chan packet

	mu    sync.Mutex // guards fault
	fault linkFault
}

// linkFault is what a link does to packets; the zero value is nothing.
type linkFault struct {
	cut   bool
	delay time.Duration // of each
	loss  float64       // part of them
}

// packet is one that is on its way.
type packet struct {
	data []byte
	due  time.Time
}

// address is that of a machine by its number.
func address(machine int) [4]byte { return [4]byte{10, 0, 0, byte(machine + 1)} }

// newNetwork makes the namespaces of n machines. The caller's goroutine is locked to its thread.
func newNetwork(n int) (*network, error) {
	w := &network{}
	for i := range n {
		s, err := newNamespace(address(i))
		if err != nil {
			w.close()
			return nil, fmt.Errorf("a network namespace for each machine: %w", err)
		}
		w.spaces = append(w.spaces, s)
	}
	w.links = make([][]*link, n)
	for from := range n {
		w.links[from] = make([]*link, n)
		for to := range n {
			if from == to {
				continue
			}
			l := &link{to: w.spaces[to].device, queue: make(chan packet, maxQueued)}
			w.links[from][to] = l
			w.running.Go(l.carry)
		}
		w.running.Go(func() { w.route(from) })
	}
	return w, nil
}

// close ends the network, and waits until nothing of it runs.
func (w *network) close() {
	for _, s := range w.spaces {
		_ = s.device.Close() // it ends what reads it
	}
	w.running.Wait()
	for _, s := range w.spaces {
		_ = s.file.Close() // it was opened for reading
	}
}

// route reads what a machine sends until its device is closed.
func (w *network) route(from int) {
	defer func() {
		for _, l := range w.links[from] {
			if l != nil {
				close(l.queue)
			}
		}
	}()
	buffer := make([]byte, maxPacket)
	for {
		n, err := w.spaces[from].device.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || n < 20 || buffer[0]>>4 != 4 {
			continue // IPv6 says something of its own
		}
		to := int(buffer[19]) - 1 // the last byte of where it goes
		if to >= 0 && to < len(w.links) && to != from {
			w.links[from][to].send(buffer[:n])
		}
	}
}

func (l *link) send(data []byte) {
	l.mu.Lock()
	fault := l.fault
	l.mu.Unlock()
	if fault.cut || fault.loss > 0 && rand.Float64() < fault.loss {
		return
	}
	select {
	case l.queue <- packet{append([]byte(nil), data...), time.Now().Add(fault.delay)}:
	default:
	}
}

// carry brings packets to the machine, one after the other.
func (l *link) carry() {
	for p := range l.queue {
		if wait := time.Until(p.due); wait > 0 {
			pause(context.Background(), wait)
		}
		_, _ = l.to.Write(p.data) // a machine that is down takes none
	}
}

// break has the links from machines and to them be faulty; without a fault they are whole again.
func (w *network) set(machine int, fault linkFault, from, to bool) {
	for other := range w.links {
		if other == machine {
			continue
		}
		if from {
			w.links[machine][other].set(fault)
		}
		if to {
			w.links[other][machine].set(fault)
		}
	}
}

func (l *link) set(fault linkFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault
}

// newNamespace makes one whose device has an address. The caller's goroutine is locked to its thread.
func newNamespace(address [4]byte) (s *namespace, err error) {
	own, err := openNamespace()
	if err != nil {
		return nil, err
	}
	defer own.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	defer func() { err = errors.Join(err, enter(own)) }()
	s = &namespace{}
	if s.file, err = openNamespace(); err != nil {
		return nil, err
	}
	if s.device, err = openDevice(address); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// openNamespace is the network namespace of this thread.
func openNamespace() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

func enter(ns *os.File) error {
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	return nil
}

// openDevice makes a device of this thread's namespace, and sets up loopback.
func openDevice(address [4]byte) (device *os.File, err error) {
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	defer func() {
		if err != nil {
			_ = unix.Close(tun)
		}
	}()
	const name = "cluster"
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tun, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("make a network device: %w", err)
	}
	err = configure(
		setting{name, unix.SIOCSIFADDR, address},
		setting{name, unix.SIOCSIFNETMASK, [4]byte{255, 255, 255, 0}},
		setting{name, unix.SIOCSIFMTU, uint32(maxPacket)},
		setting{name, unix.SIOCSIFFLAGS, uint16(unix.IFF_UP)},
		setting{"lo", unix.SIOCSIFFLAGS, uint16(unix.IFF_UP)},
	)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(tun), "/dev/net/tun"), nil
}

// setting is something of a network device.
type setting struct {
	device string
	what   uint
	value  any // uint16, uint32, or [4]byte for an address
}

// configure sets up network devices of this thread's namespace.
func configure(settings ...setting) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	for _, s := range settings {
		request, err := unix.NewIfreq(s.device)
		if err != nil {
			return err
		}
		switch value := s.value.(type) {
		case uint16:
			request.SetUint16(value)
		case uint32:
			request.SetUint32(value)
		case [4]byte:
			if err := request.SetInet4Addr(value[:]); err != nil {
				return err
			}
		}
		if err := unix.IoctlIfreq(socket, s.what, request); err != nil {
			return fmt.Errorf("set up the network device %s: %w", s.device, err)
		}
	}
	return nil
}

// within does something in the namespace; in this process's own for nil.
func (s *namespace) within(do func() error) error {
	if s == nil {
		return do()
	}
	runtime.LockOSThread() // the namespace is a thread's
	own, err := openNamespace()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err := enter(s.file); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = do()
	if back := enter(own); back != nil {
		return errors.Join(err, back) // the thread ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// dialPatience bounds one connection to a server.
const dialPatience = 5 * time.Second

// DialContext implements [client.Dialer]: it connects from within the namespace.
func (s *namespace) DialContext(ctx context.Context, net_, address string) (conn net.Conn, err error) {
	err = s.within(func() error {
		conn, err = (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, net_, address)
		return err
	})
	return conn, err
}
