package stdio

import (
	"sync"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/proc"
)

// shares are what agents have together with those that they created, by the agent at
// the top. The zero value is ready; it is safe for concurrent use.
type shares struct {
	mu   sync.Mutex // guards all below
	all  map[string]*proc.Share
	uses int // launches under way, whose shares may have no member yet
}

// take returns the shares of an agent's process, its own first; release is to be called
// once the process has started or failed to.
func (t *shares) take(s supervisor.Spec) (taken []*proc.Share, release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]*proc.Share{}
	}
	if t.uses == 0 {
		for agent, share := range t.all {
			if share.Empty() {
				delete(t.all, agent)
			}
		}
	}
	t.uses++
	for _, of := range append([]supervisor.Share{{Agent: s.ID, Limits: s.Limits}}, s.Shares...) {
		l := proc.Limits(of.Limits)
		if l.MemoryBytes == 0 && l.Processes == 0 && l.CPUSeconds == 0 {
			continue
		}
		share := t.all[of.Agent]
		if share == nil {
			share = proc.NewShare(of.Agent, l)
			t.all[of.Agent] = share
		}
		share.SetLimits(l)
		taken = append(taken, share)
	}
	return taken, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.uses--
	}
}
