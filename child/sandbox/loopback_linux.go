package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

const (
	// gateBacklog is how many connections wait for a gate to take them.
	gateBacklog = 128
	// maxSpawnMessage bounds a message to or from a spawner, in bytes.
	maxSpawnMessage = 16 << 10
	// maxSpawnFiles is how many descriptors come with one.
	maxSpawnFiles = 8
)

// Loopback is a network that programs share: they find each other in it by its loopback
// addresses, and nothing else but the gates of those that have one. It is made for the first of
// them. As a process cannot go to the network of another user namespace, a process of ours, the
// spawner, lives in it and starts the reapers of all of them. The zero value is ready for use.
// All methods are safe for concurrent use.
type Loopback struct {
	mu      sync.Mutex     // guards the rest
	spawner *spawner       // nil before the first program
	had     bool           // a program had it, and all have it from then on
	refused error          // why the system gives none, as it will again
	closed  bool           // for good
	running sync.WaitGroup // what watches spawners
}

// errLoopbackClosed is why no program starts any more.
var errLoopbackClosed = errors.New("the agent ends")

// Renew has the programs that start from now on share another network than those before.
func (l *Loopback) Renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spawner != nil {
		l.spawner.end()
		l.spawner = nil
	}
}

// Close ends what we have running for it. The network ends with the last program in it.
func (l *Loopback) Close() {
	l.Renew()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.running.Wait()
}

// enter is the spawner in the network; nil without an error if there is none, and none is needed.
func (l *Loopback) enter(needed bool) (*spawner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errLoopbackClosed
	}
	if s := l.spawner; s != nil && !s.over.Load() {
		return s, nil
	}
	err := l.refused
	if err == nil {
		if l.spawner, err = startSpawner(&l.running); err == nil {
			l.had = true
			return l.spawner, nil
		}
		l.spawner = nil
		if !passing(err) && !l.had {
			l.refused = err
		}
	}
	switch {
	case needed:
		return nil, fmt.Errorf("%w to a network of their own, by which they reach what they may: the system refuses it: %w", ErrUnsupported, err)
	case l.had:
		return nil, fmt.Errorf("confine it as earlier programs were: a network of its own: %w", err)
	}
	return nil, nil
}

// spawner is a process of ours that starts reapers in its network.
type spawner struct {
	process *os.Process
	user    bool // it has a user namespace of its own
	over    atomic.Bool
	early   *spawnAnswer // its first answer, if it came before that of its launcher

	mu      sync.Mutex // guards control: one request at a time
	control *os.File
}

// spawnRequest is what a spawner is asked for: a reaper, with the descriptors that come with
// the request as its first, or the listening socket of a gate.
type spawnRequest struct {
	Dir  string
	Gate bool
}

// spawnAnswer is the answer; the first one comes without a request, when the network is there.
type spawnAnswer struct {
	Launched bool // it is a launcher's: the spawner's first one may come before
	PID      int
	Port     int // of the gate's socket, which comes with the answer
	Error    string
	Errno    int
}

// err is what an answer tells of a failure.
func (a spawnAnswer) err() error {
	switch {
	case a.Errno != 0:
		return &refusedError{a.Error, syscall.Errno(a.Errno)}
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// send sends an answer, with descriptors, from a spawner or a launcher.
func (a spawnAnswer) send(descriptors ...int) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	var with []byte
	if len(descriptors) > 0 {
		with = unix.UnixRights(descriptors...)
	}
	return unix.Sendmsg(orderFD, data, with, nil, unix.MSG_NOSIGNAL)
}

func failedAnswer(err error) spawnAnswer {
	errno, _ := errors.AsType[syscall.Errno](err)
	return spawnAnswer{Error: err.Error(), Errno: int(errno)}
}

// startSpawner starts a spawner in a network of its own, with a user namespace if it takes one.
// running counts the goroutine that watches it.
func startSpawner(running *sync.WaitGroup) (*spawner, error) {
	s, err := startSpawnerIn(mountView, running)
	if err != nil {
		s, err = startSpawnerIn(userView, running)
	}
	return s, err
}

func startSpawnerIn(v view, running *sync.WaitGroup) (*spawner, error) {
	attr, arg := reaperAttr(), launchArg
	if v == mountView {
		attr.Cloneflags, arg = unix.CLONE_NEWNET, spawnerArg
	}
	control, theirs, err := controlPair()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, control.Close(), theirs.Close())
	}
	s := &spawner{user: v == userView, control: control}
	_ = control.SetDeadline(time.Now().Add(startPatience)) // a socket of ours has deadlines
	s.process, err = reapers.start(func() (*os.Process, error) {
		first, err := os.StartProcess(executable(), []string{os.Args[0], arg}, &os.ProcAttr{
			Env: []string{}, Files: []*os.File{null, null, null, theirs}, Sys: attr,
		})
		theirs.Close()
		if err != nil || !s.user {
			return first, err
		}
		return s.launched(first)
	})
	null.Close()
	if err != nil {
		control.Close()
		return nil, err
	}
	running.Go(s.watch)
	if err := s.ready(); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// ready waits for the first answer of a spawner that has just been started.
func (s *spawner) ready() (err error) {
	var a spawnAnswer
	if s.early != nil {
		a = *s.early
	} else {
		a, _, err = s.answer()
	}
	return errors.Join(err, a.err())
}

// launched is the spawner that a launcher has started. The caller holds the lock of reapers.
func (s *spawner) launched(launcher *os.Process) (*os.Process, error) {
	a, _, err := s.answer()
	for err == nil && !a.Launched {
		s.early = &a
		a, _, err = s.answer()
	}
	if err == nil {
		err = a.err()
	}
	if err != nil {
		_ = launcher.Kill() // or it has ended
	}
	_, _ = launcher.Wait() // of what it has done, the answer tells
	if err != nil {
		return nil, err
	}
	return os.FindProcess(a.PID) // it is a child of ours, and not reaped
}

// launchSpawner starts a spawner as a child of whoever started us, and answers with its id. The maps of a
// user namespace are written by way of /proc, which is closed to a child that holds keys
// (PR_SET_DUMPABLE); this process holds none. It returns its exit status.
func launchSpawner() int {
	keepDescriptors()
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNET | unix.CLONE_PARENT}
	attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN} // until its loopback is switched on
	pid, err := 0, ownUsers(attr)
	if err == nil {
		pid, err = syscall.ForkExec(executable(), []string{os.Args[0], spawnerArg}, &syscall.ProcAttr{
			Env: []string{}, Files: []uintptr{0, 1, 2, orderFD}, Sys: attr,
		})
	}
	a := spawnAnswer{PID: pid}
	if err != nil {
		a = failedAnswer(fmt.Errorf("start it: %w", err))
	}
	a.Launched = true
	if a.send() != nil {
		return 2 // a person tries the argument out
	}
	return 0
}

// controlPair are the ends of the socket by which a spawner is spoken to.
func controlPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(pair[0]), unix.Close(pair[1]))
	}
	return os.NewFile(uintptr(pair[0]), "spawner"), os.NewFile(uintptr(pair[1]), "spawner"), nil
}

// watch sees the spawner to its end.
func (s *spawner) watch() {
	var held atomic.Bool
	keepRunning(s.process.Pid, &held)
	s.over.Store(true)
	state, err := s.process.Wait()
	s.control.Close() // a request that waits has no answer any more
	reapers.ended(s.process.Pid, err != nil || !state.Success())
}

// end ends the spawner, and does not wait for that. What it has started goes on.
func (s *spawner) end() {
	s.over.Store(true)
	_ = s.control.Close()
	_ = s.process.Signal(syscall.SIGCONT) // or it is gone
	_ = s.process.Kill()
}

// spawn starts a reaper with its descriptors. The caller holds the lock of reapers.
func (s *spawner) spawn(dir string, files []*os.File) (*os.Process, error) {
	a, _, err := s.ask(spawnRequest{Dir: dir}, files)
	if err != nil {
		return nil, err
	}
	return os.FindProcess(a.PID) // it is a child of ours, and not reaped
}

// gate is a listening socket in the network, and its address there.
func (s *spawner) gate() (socket *os.File, address string, err error) {
	a, socket, err := s.ask(spawnRequest{Gate: true}, nil)
	if err == nil && socket == nil {
		err = errors.New("no socket has come")
	}
	if err != nil {
		return nil, "", fmt.Errorf("open a gate to the network: %w", err)
	}
	return socket, fmt.Sprintf("127.0.0.1:%d", a.Port), nil
}

// ask has the spawner answer a request. One that does not is ended.
func (s *spawner) ask(request spawnRequest, files []*os.File) (spawnAnswer, *os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.control.SetDeadline(time.Now().Add(startPatience))
	a, socket, err := spawnAnswer{}, (*os.File)(nil), s.request(request, files)
	if err == nil {
		a, socket, err = s.answer()
	}
	if err != nil {
		if !passing(err) { // else nothing was sent
			s.end()
		}
		return a, nil, fmt.Errorf("the process that starts programs in their network: %w", err)
	}
	return a, socket, a.err()
}

// request sends a request with descriptors.
func (s *spawner) request(r spawnRequest, files []*os.File) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	conn, err := s.control.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), data, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
	})
	return errors.Join(err, failed)
}

// answer receives an answer, with the descriptor that may come with it.
func (s *spawner) answer() (a spawnAnswer, socket *os.File, err error) {
	conn, err := s.control.SyscallConn()
	if err != nil {
		return a, nil, err
	}
	var data []byte
	var fds []int
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		data, fds, failed = receiveMessage(int(fd))
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err = errors.Join(err, failed); err != nil {
		return a, nil, err
	}
	for _, fd := range fds {
		if socket != nil {
			unix.Close(fd)
			continue
		}
		socket = os.NewFile(uintptr(fd), "gate")
	}
	return a, socket, json.Unmarshal(data, &a)
}

// receiveMessage receives one message. io.EOF is the end.
func receiveMessage(from int) (data []byte, fds []int, err error) {
	data, rights := make([]byte, maxSpawnMessage), make([]byte, unix.CmsgSpace(4*maxSpawnFiles))
	n, size, err := 0, 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, size, _, _, err = unix.Recvmsg(from, data, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return nil, nil, err
	}
	if size > 0 {
		messages, err := unix.ParseSocketControlMessage(rights[:size])
		if err != nil {
			return nil, nil, err
		}
		for i := range messages {
			more, err := unix.ParseUnixRights(&messages[i])
			if err != nil {
				return nil, fds, err
			}
			fds = append(fds, more...)
		}
	}
	if n == 0 {
		return nil, fds, io.EOF
	}
	return data[:n], fds, nil
}
