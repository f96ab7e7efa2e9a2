package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// playParent starts some bare processes, says so, and waits for the end of its
// stdin. The kernel ends them when it is killed.
func playParent(program, count string) error {
	runtime.LockOSThread() // the signal comes when the thread ends
	_, stop, err := startEchoes(program, count, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL})
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintln(os.Stdout, "ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// killTree kills a process, and is how long it takes until that and all that
// descends from it have ended. It fails after 10 s.
func killTree(pid int) (float64, error) {
	tree, err := proctree.Descendants(pid)
	if err != nil {
		return 0, err
	}
	var ends []int
	defer func() {
		for _, fd := range ends {
			_ = unix.Close(fd)
		}
	}()
	for _, one := range append(tree, pid) {
		fd, err := unix.PidfdOpen(one, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("watch process %d: %w", one, err)
		}
		ends = append(ends, fd)
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, err
	}
	for i, fd := range ends {
		if err := awaitEnd(fd, began.Add(10*time.Second)); err != nil {
			return 0, fmt.Errorf("process %d of %d of a tree: %w", i+1, len(ends), err)
		}
	}
	return time.Since(began).Seconds(), nil
}

// awaitEnd waits for the end of the process of a pidfd.
func awaitEnd(fd int, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return errors.New("is still there")
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		}
	}
}
