package proc

import (
	"errors"
	"runtime"
	"sync"

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

// awaitExit waits until the process is dead, without reaping it and without
// holding a thread. It returns false at once if the kernel cannot do that.
func (p *Process) awaitExit() (dead bool) {
	if p.pidfd == nil {
		return false
	}
	defer p.pidfd.Close()
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	err = conn.Read(func(fd uintptr) (done bool) {
		var info unix.Siginfo
		err := error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			err = unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		}
		dead = err == nil && proctree.Exited(info)
		return dead || err != nil
	})
	return dead && err == nil
}
