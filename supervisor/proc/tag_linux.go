package proc

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A tag marks all processes that come of a server: it is the hard limit of the
// number of file locks (RLIMIT_LOCKS), which Linux has not heeded since 2.4.
// Every process inherits it, through exec, setsid and an emptied environment
// too; nobody can raise it without being root over the machine, and all can
// read it, also of processes that hide their environment. The server has the
// last number of span, the processes that it starts those before it.
type tag uint64

const (
	span = 1 << 24 // numbers of a tag; incarnations of one server that are told apart
	// leastTag keeps away from limits that somebody may mean.
	leastTag = 1 << 40
	// mostTag is below all that stands for no limit anywhere.
	mostTag = 1 << 62
)

// takeTag makes up a tag and puts it on this process.
func takeTag() (tag, error) {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &now); err != nil {
		return 0, fmt.Errorf("read RLIMIT_LOCKS: %w", err)
	}
	var t tag
	switch {
	case now.Max >= mostTag:
		t = tag(mostTag/2 + rand.Uint64N(mostTag/2/span)*span)
	case now.Max >= leastTag+1<<51: // within another server's: stay below
		t = tag(now.Max - span*(1+rand.Uint64N(1<<26)))
	default:
		return 0, fmt.Errorf("RLIMIT_LOCKS is bounded to %d", now.Max)
	}
	return t, setTag(0, t.server())
}

// setTag puts a number on a process; 0 is this one.
func setTag(pid int, number uint64) error {
	if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: number, Max: number}, nil); err != nil {
		return fmt.Errorf("set RLIMIT_LOCKS: %w", err)
	}
	return nil
}

func (t tag) server() uint64 { return uint64(t) + span - 1 }

// number is that of the nth process that the server starts.
func (t tag) number(n uint64) uint64 { return uint64(t) + n%(span-1) }

func (t tag) has(number uint64) bool { return number >= uint64(t) && number < uint64(t)+span }

func (t tag) String() string { return strconv.FormatUint(uint64(t), 16) }

func parseTag(s string) (tag, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	t := tag(n)
	return t, err == nil && n >= leastTag && n < mostTag && t.String() == s
}

// numberOf reads the number on a process; 0 if it is gone or bears none.
func numberOf(pid int) uint64 {
	var limit unix.Rlimit
	switch err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit); {
	case err == nil && limit.Max < mostTag:
		return limit.Max
	case !errors.Is(err, unix.EPERM) || os.Geteuid() != 0:
		return 0 // also of another user's, which we could not end either
	}
	// Another user's, and we are root, if not in every way. It takes 50 times as long.
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0
	}
	_, line, _ := bytes.Cut(data, []byte("\nMax file locks"))
	fields := bytes.Fields(line) // soft, hard, …
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil || n >= mostTag {
		return 0 // unlimited
	}
	return n
}

// everybody lists the processes of the machine, the youngest first: they are
// looked at before they may be gone.
func everybody() []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // those that it could read
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	slices.Reverse(pids)
	return pids
}

// endTagged ends all processes with a wanted number, but for this one and the
// group that it is in. It returns those that it could not end.
func endTagged(wanted func(uint64) bool, first func()) (left []int) {
	return endAll(func(kill bool) []int {
		pids, groups := tagged(wanted)
		switch {
		case !kill:
			calm(pids, groups)
		case len(pids) > 0:
			first()
			killAll(pids, groups, wanted)
		}
		return pids
	})
}

// calm lets those that fork have the processors last: a storm of them would keep
// us, who may not be root, from listing them. A process that leads its group, as
// wardens do, goes on as it was.
func calm(pids []int, groups map[int]bool) {
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err == nil && group != pid && groups[group] {
			_ = unix.Setpriority(unix.PRIO_PGRP, group, 19) // or it has gone
			delete(groups, group)
		}
	}
}

// lookAgain is how often nobody is looked for again while others end: one that
// was listed may have started another before it ended, which was not.
const lookAgain = 20

// tagged lists the processes that live with a wanted number, but for this one,
// and their groups that nobody else is in.
func tagged(wanted func(uint64) bool) (pids []int, groups map[int]bool) {
	for range lookAgain {
		var ended bool
		pids, groups, ended = look(wanted)
		if len(pids) > 0 || !ended {
			break
		}
	}
	return pids, groups
}

// look is one look at all processes. ended says that some of those that were
// wanted, or might have been, have ended meanwhile.
func look(wanted func(uint64) bool) (pids []int, groups map[int]bool, ended bool) {
	groups = map[int]bool{}
	others := map[int][]int{} // by group
	for _, pid := range everybody() {
		group, err := unix.Getpgid(pid) // first: it may be gone when we know that it is wanted
		switch {
		case pid == os.Getpid():
		case !wanted(numberOf(pid)):
			if err == nil {
				others[group] = append(others[group], pid)
			}
			ended = ended || err != nil || errors.Is(unix.Kill(pid, 0), unix.ESRCH)
		case dead(pid):
			ended = true
		default:
			pids = append(pids, pid)
			if err == nil && group > 1 && group != unix.Getpgrp() {
				groups[group] = true
			}
		}
	}
	for group := range groups {
		if slices.ContainsFunc(others[group], func(pid int) bool { return !dead(pid) }) {
			delete(groups, group)
		}
	}
	return pids, groups, ended
}

// dead reports whether a process has ended, though perhaps nobody took note. A
// storm of forks leaves thousands of such to a slow init, so it must be quick.
func dead(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		s, ok := readStat(pid)
		return !ok || s.state == 'Z' || s.state == 'X'
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// stat is what /proc/PID/stat says.
type stat struct {
	state  byte
	parent int
	ticks  int64 // on the processors, its children that were waited for included
	tasks  int64 // threads
	pages  int64 // of memory that are there

	started int64 // ticks since the start of the machine
}

// cpu is the time that the ticks are: USER_HZ is the same on all machines of ours.
func (s stat) cpu() time.Duration { return time.Duration(s.ticks) * (time.Second / 100) }

func readStat(pid int) (s stat, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(data)
}

// parseStat reads PID (NAME) STATE PARENT …, where the name may hold anything.
func parseStat(data []byte) (s stat, ok bool) {
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 22 {
		return stat{}, false
	}
	number := func(i int) int64 { // 0 for what is none
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		return max(n, 0)
	}
	s = stat{state: fields[0][0], parent: int(min(number(1), math.MaxInt32)), tasks: number(17), started: number(19), pages: min(number(21), 1<<40)}
	for i := 11; i <= 14; i++ { // utime stime cutime cstime
		s.ticks += min(number(i), math.MaxInt64/8)
	}
	return s, true
}

// killAll kills processes that still bear a number that is wanted: an id may
// pass to another process at any time. Of a group that has nobody else in it, all
// are killed at once: who forks does not get away by dying first.
func killAll(pids []int, groups map[int]bool, wanted func(uint64) bool) {
	for group := range groups {
		_ = unix.Kill(-group, unix.SIGKILL) // or nobody is left in it
	}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			if errors.Is(err, unix.ENOSYS) && wanted(numberOf(pid)) { // Linux before 5.3
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			continue
		}
		if wanted(numberOf(pid)) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it is gone, or another user's
		}
		unix.Close(fd)
	}
}
