package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// processorTime is how long a process has used a processor, its ended threads included and
// its children not. All of it is counted in nanoseconds, that in the
// kernel in ticks.
func processorTime(pid int) (spent, error) {
	const ticks = 100 // USER_HZ
	processor, err := proctree.CPUClock(pid)
	if err != nil {
		return spent{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return spent{}, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the state on: proc_pid_stat(5)
	if len(fields) < 13 {
		return spent{}, fmt.Errorf("unreadable stat of process %d", pid)
	}
	system, err := strconv.ParseFloat(fields[12], 64)
	return spent{processor: processor.Seconds(), kernel: system / ticks}, err
}

// callCounter counts the system calls of a process by the kernel's tracing.
type callCounter struct{ fds []int }

// countCalls begins to count those of a process; nil where it may not be done.
func countCalls(pid int) *callCounter {
	id, ok := tracepoint()
	if !ok {
		return nil
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return nil
	}
	c := &callCounter{}
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err != nil {
			continue
		}
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit}
		attr.Size = uint32(unsafe.Sizeof(attr))
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			continue // the thread has ended, or may not be looked at
		}
		c.fds = append(c.fds, fd)
	}
	return c
}

// count is how many there were, 0 where they cannot be counted.
func (c *callCounter) count() float64 {
	if c == nil {
		return 0
	}
	sum := uint64(0)
	for _, fd := range c.fds {
		var data [8]byte
		if n, err := unix.Read(fd, data[:]); err == nil && n == len(data) {
			sum += binary.NativeEndian.Uint64(data[:])
		}
	}
	return float64(sum)
}

func (c *callCounter) close() {
	if c == nil {
		return
	}
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
}

// tracepoint is the number of the one at the entry of each system call. Only root finds it.
func tracepoint() (uint64, bool) {
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		data, err := os.ReadFile(dir + "/events/raw_syscalls/sys_enter/id")
		if err != nil {
			continue
		}
		if id, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err == nil {
			return id, true
		}
	}
	return 0, false
}
