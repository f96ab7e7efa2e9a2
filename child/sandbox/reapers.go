package sandbox

import (
	"os/exec"
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

func (t *table) start(cmd *exec.Cmd) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	t.pids[cmd.Process.Pid] = true
	return nil
}

// ended forgets a reaper that was reaped. Of one that failed, what it should
// have killed is killed.
func (t *table) ended(cmd *exec.Cmd, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pids, cmd.Process.Pid)
	if failed {
		killOrphans(t.pids)
	}
}
