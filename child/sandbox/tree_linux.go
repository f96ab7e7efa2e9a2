package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphanPatience is how long orphans that were killed are waited for: one may
// hang in the kernel.
const orphanPatience = 2 * time.Second

// adopted reports, under the lock of wardens, that Adopt was called.
var adopted bool

// Adopt makes this process the parent of what a killed warden leaves behind, so
// that it can be killed. A process that has adopted must start all its processes
// by this package: others would be taken for such orphans.
func Adopt() error {
	wardens.mu.Lock()
	defer wardens.mu.Unlock()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	adopted = true
	return nil
}

// reapOrphans makes the warden the parent of what its program leaves behind.
func reapOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // any kernel with Landlock has it
}

// family is the program of a warden with all that comes of it. Its processes
// become the warden's children as those between them and it die.
type family struct {
	program int

	mu   sync.Mutex // guards over, and is held where children are listed or reaped: no id changes hands meanwhile
	over bool
}

// end kills the program and all that came of it; wait sees it through.
func (f *family) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	killChildren(nil)
}

// wait returns when there is no process left, and tells when the program has
// exited. Then the others are killed.
func (f *family) wait(exited func(syscall.WaitStatus)) {
	for left := true; left; {
		// Nobody is reaped but under the lock.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			return
		}
		f.mu.Lock()
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			left = !errors.Is(err, syscall.ECHILD)
			if pid <= 0 {
				break
			}
			if pid == f.program {
				exited(status)
				f.over = true
			}
		}
		if f.over && left {
			killChildren(nil)
		}
		f.mu.Unlock()
	}
}

// killChildren kills the children of this process but those that are spared,
// each with its process group: who forks in a group of its own does not get away
// by dying first. Their groups hold nobody else, as none of them is of our
// session. It returns those that it killed.
func killChildren(spare map[int]bool) []int {
	var killed []int
	for _, pid := range children() {
		if spare[pid] {
			continue
		}
		group, err := unix.Getpgid(pid)
		_ = unix.Kill(pid, unix.SIGKILL) // it is a zombie at worst; or somebody else's, which no means of ours can kill
		if err == nil && group > 1 && group != unix.Getpgrp() {
			_ = unix.Kill(-group, unix.SIGKILL)
		}
		killed = append(killed, pid)
	}
	return killed
}

// children lists the processes whose parent is this one, zombies included.
func children() []int {
	const tasks = "/proc/self/task"
	threads, _ := os.ReadDir(tasks) // none is found
	var pids []int
	listed := false
	for _, thread := range threads {
		data, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		listed = listed || err == nil // else the thread is gone, or the kernel keeps no lists
		for _, field := range bytes.Fields(data) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if !listed {
		return searchChildren()
	}
	return pids
}

// searchChildren is children for kernels that keep no list.
func searchChildren() []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	us := strconv.Itoa(os.Getpid())
	var pids []int
	for _, stat := range stats {
		data, _ := os.ReadFile(stat) // the process is gone
		// PID (NAME) STATE PARENT …, where the name may hold anything.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err == nil && len(fields) > 1 && string(fields[1]) == us {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killOrphans kills what killed wardens left to us, and waits for its end.
func killOrphans(known map[int]bool) {
	if !adopted {
		return
	}
	deadline := time.Now().Add(orphanPatience)
	for time.Now().Before(deadline) {
		orphans := killChildren(known)
		if len(orphans) == 0 {
			return
		}
		for _, pid := range orphans {
			reap(pid, deadline)
		}
	}
}

// reap waits for a child of ours that was killed.
func reap(pid int, deadline time.Time) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(fd)
		for left := time.Until(deadline); left > 0; left = time.Until(deadline) {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
			if n > 0 || !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // not ended: the next round finds it again
}
