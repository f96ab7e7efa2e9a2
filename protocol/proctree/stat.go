package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Stat is what /proc/PID/stat says of a process.
type Stat struct {
	Name    string        // of the program, at most 15 bytes of any kind
	State   byte          // as in 'R' for running, 'T' for stopped
	Parent  int           // process id
	CPU     time.Duration // on the processors, with Waited
	Waited  time.Duration // of it: that of children which it waited for, with theirs
	Threads int64
	Memory  int64 // bytes in memory, shared pages included; 0 once the first thread has ended
	Started int64 // ticks of 10 ms from the start of the machine to that of the process
}

// Ended reports whether the process has ended. Its parent may still have to wait
// for it. A process whose first thread alone has ended is shown as a zombie, but
// has other threads.
func (s Stat) Ended() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// ReadStat reads the state of a process. [Gone] tells whether an error means that
// there is no such process.
func ReadStat(pid int) (Stat, error) {
	data, err := ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	s, ok := parseStat(data)
	if !ok {
		return Stat{}, fmt.Errorf("/proc/%d/stat has an unknown form", pid)
	}
	return s, nil
}

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on all machines of
// ours.
const tick = time.Second / 100

// parseStat reads PID (NAME) STATE PARENT …, where NAME may hold anything.
func parseStat(data []byte) (Stat, bool) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return Stat{}, false
	}
	fields := bytes.Fields(data[end+1:])
	if len(fields) < 22 {
		return Stat{}, false
	}
	number := func(i int, most int64) int64 { // 0 for what is none
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		return min(max(n, 0), most)
	}
	s := Stat{
		Name: string(data[open+1 : end]), State: fields[0][0], Parent: int(number(1, math.MaxInt32)),
		Threads: number(17, math.MaxInt64), Started: number(19, math.MaxInt64), Memory: number(21, 1<<40) * int64(os.Getpagesize()),
	}
	times := func(user, system int) time.Duration {
		return time.Duration(number(user, 1<<36)+number(system, 1<<36)) * tick
	}
	s.Waited = times(13, 14) // cutime cstime
	s.CPU = times(11, 12) + s.Waited
	return s, true
}

// Gone reports whether an error of reading /proc/PID says that there is no such
// process any more.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// Process names one process for good. Another process that gets its id has
// another start time.
type Process struct {
	PID     int
	Started int64 // Stat.Started
}

// Find names the process that has an id now.
func Find(pid int) (Process, error) {
	s, err := ReadStat(pid)
	return Process{PID: pid, Started: s.Started}, err
}

// Lives reports whether the process is there and has not ended. A process that
// cannot be read counts as living, so that nothing is done for its end.
func (p Process) Lives() bool {
	s, err := ReadStat(p.PID)
	if err != nil {
		return !Gone(err)
	}
	return s.Started == p.Started && !s.Ended()
}

// All lists the ids of the machine's processes, zombies included, the youngest
// first. With an error there may be more.
func All() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	slices.Reverse(pids)
	return pids, err
}
