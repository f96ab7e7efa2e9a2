package chaos

import (
	"math"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// tags are the numbers that a server and all processes that come of it bear
// (SPEC §5.5). The server's own is the last.
type tags struct{ first, last uint64 }

func (t tags) has(number uint64) bool { return t.first <= number && number <= t.last }

// number is what a process bears: its hard limit of file locks, which no process
// can take off. It is 0 for none, and for a process that has gone.
func number(pid int) uint64 {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit); err != nil || limit.Max == math.MaxUint64 {
		return 0 // also one of another user, whom no server of ours could have started
	}
	return limit.Max
}

// tagsOf are those of a server: its records are named after the first, and it
// bears the last itself. ok is false where it has none.
func tagsOf(server int, home string) (t tags, ok bool) {
	t.last = number(server)
	records, _ := os.ReadDir(filepath.Join(home, "run", "trees")) // none without a tag
	for _, record := range records {
		first, err := strconv.ParseUint(record.Name(), 16, 64)
		if err == nil && first <= t.last && first > t.first {
			t.first = first
		}
	}
	return t, t.first > 0
}
