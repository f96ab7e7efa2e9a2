package proc

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// spawner runs functions on one thread that lives as long as we do. The kernel
// sends Pdeathsig when the thread that started a process ends, not when its
// parent does, and Go ends threads as it likes.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go spawnThread(work)
	return work
})

func spawnThread(work <-chan func()) {
	runtime.LockOSThread()
	proctree.CoarseTimers() // of each child
	for f := range work {
		f()
	}
}

// onSpawner runs f on that thread.
func onSpawner(f func() error) error {
	result := make(chan error)
	spawner() <- func() { result <- f() }
	return <-result
}

// exits waits for the ends of all processes in one goroutine, which lives as long as we do: a
// process that lives has none for that.
type exits struct {
	epoll int

	mu sync.Mutex         // guards of
	of map[int32]*Process // by the pidfd
}

// theExits is nil where the system has none.
var theExits = sync.OnceValue(func() *exits {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else it would hold a thread
		unix.Close(fd)
		return nil
	}
	file := os.NewFile(uintptr(fd), "epoll")
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil
	}
	e := &exits{epoll: fd, of: map[int32]*Process{}}
	go e.run(conn)
	return e
})

func (e *exits) run(conn syscall.RawConn) {
	var events [64]unix.EpollEvent
	for {
		n := 0
		if conn.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events[:], 0) // or it was interrupted, and is tried again
			return n > 0
		}) != nil {
			return // nobody closes it
		}
		for _, event := range events[:n] {
			e.mu.Lock()
			p := e.of[event.Fd]
			delete(e.of, event.Fd)
			e.mu.Unlock()
			if p != nil {
				go p.wait()
			}
		}
	}
}

// add has wait of a process called once it is dead.
func (e *exits) add(p *Process) error {
	fd := int32(p.pidfd.Fd())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.of[fd] = p
	err := unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: fd})
	if err != nil {
		delete(e.of, fd)
	}
	return err
}

// whenDead begins wait once the process is dead, or at once if the system does not tell
// that before it is reaped.
func (p *Process) whenDead() {
	if e := theExits(); p.pidfd == nil || e == nil || e.add(p) != nil {
		go p.wait()
	}
}

// awaitExit reports whether the process is dead, without reaping it. False is for one of which
// the kernel does not tell that.
func (p *Process) awaitExit() (dead bool) {
	if p.pidfd == nil {
		return false
	}
	defer p.pidfd.Close()
	var info unix.Siginfo
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PIDFD, int(p.pidfd.Fd()), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	}
	return err == nil && proctree.Exited(info)
}
