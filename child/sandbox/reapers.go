package sandbox

import (
	"os"
	"sync"
)

// reapers are the processes that we started and have not reaped yet. While its
// lock is held no process of ours begins, so that whatever else is our child is
// an orphan of a reaper that was killed.
var reapers = table{pids: map[int]bool{}}

type table struct {
	mu   sync.Mutex // guards pids
	pids map[int]bool
}

// start has begin start a process, and knows that.
func (t *table) start(begin func() (*os.Process, error)) (*os.Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	process, err := begin()
	if err != nil {
		return nil, err
	}
	t.pids[process.Pid] = true
	return process, nil
}

// ended forgets a reaper that was reaped. Of one that failed, what it should
// have killed is killed.
func (t *table) ended(pid int, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pids, pid)
	if failed {
		killOrphans(t.pids)
	}
}
