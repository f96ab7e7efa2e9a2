package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// LineageTag marks a process and all that comes of it with a range of numbers, as
// many as tagSize. The process that took the tag bears the last number; it gives
// the others to the processes that it starts.
//
// A number is the hard limit of file locks (RLIMIT_LOCKS), which Linux has not
// heeded since 2.4. Every process inherits it, through exec, setsid and an
// emptied environment too. Nobody can raise it without being root over the
// machine. All can read it, also of processes that hide their environment.
type LineageTag uint64

const (
	tagSize = 1 << 24 // processes of one server that are told apart
	// leastTag keeps away from limits that somebody may mean.
	leastTag = 1 << 40
	// mostTag is below all that stands for no limit anywhere.
	mostTag = 1 << 62
)

// TakeLineageTag makes up a tag and puts it on this process.
func TakeLineageTag() (LineageTag, error) {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &now); err != nil {
		return 0, fmt.Errorf("read RLIMIT_LOCKS: %w", err)
	}
	var t LineageTag
	switch {
	case now.Max >= mostTag:
		t = LineageTag(mostTag/2 + rand.Uint64N(mostTag/2/tagSize)*tagSize)
	case now.Max >= leastTag+1<<51: // within another server's: stay below
		t = LineageTag(now.Max - tagSize*(1+rand.Uint64N(1<<26)))
	default:
		return 0, fmt.Errorf("RLIMIT_LOCKS is bounded to %d", now.Max)
	}
	return t, SetLineage(0, t.Own())
}

// Own is the number of the process that took the tag.
func (t LineageTag) Own() uint64 { return uint64(t) + tagSize - 1 }

// Number is that of the nth process that it starts.
func (t LineageTag) Number(n uint64) uint64 { return uint64(t) + n%(tagSize-1) }

// Has reports whether a number is of the tag.
func (t LineageTag) Has(number uint64) bool {
	return number >= uint64(t) && number < uint64(t)+tagSize
}

func (t LineageTag) String() string { return strconv.FormatUint(uint64(t), 16) }

// ParseLineageTag reads what String has written.
func ParseLineageTag(s string) (LineageTag, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	t := LineageTag(n)
	return t, err == nil && n >= leastTag && n < mostTag && t.String() == s
}

// SetLineage puts a number on a process; 0 is this one.
func SetLineage(pid int, number uint64) error {
	if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: number, Max: number}, nil); err != nil {
		return fmt.Errorf("set RLIMIT_LOCKS: %w", err)
	}
	return nil
}

// LineageVariable tells a process the number that its starter puts on it once it runs.
const LineageVariable = "NEXUS3_LINEAGE"

// JoinLineage puts the number of LineageVariable on this process, and removes the variable: on a
// busy machine the starter may come to it only when this process has started others.
func JoinLineage() {
	text := os.Getenv(LineageVariable)
	_ = os.Unsetenv(LineageVariable) // fails for no such name
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n >= leastTag && n < mostTag {
		_ = SetLineage(0, n) // the starter says what keeps it from that
	}
}

// LineageOf reads the number on a process; 0 if it is gone or bears none.
func LineageOf(pid int) uint64 {
	var limit unix.Rlimit
	switch err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit); {
	case err == nil && limit.Max < mostTag:
		return limit.Max
	case !errors.Is(err, unix.EPERM) || os.Geteuid() != 0:
		return 0 // also of another user's, which we could not end either
	}
	// Another user's, and we are root, if not in every way. It takes 50 times as long.
	data, err := ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
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
