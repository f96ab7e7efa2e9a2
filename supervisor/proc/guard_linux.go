package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/proctree"
)

type guardSystem struct {
	tag      proctree.LineageTag // 0: there is none, and all but Pdeathsig rests on it
	cgroups  *cgroups            // nil: there are none
	record   *record
	watchdog *watchdog

	mu      sync.Mutex // guards what follows, and is held where processes are started and reaped
	started map[int]bool
	reaped  map[uint64]time.Duration // on the processors, of orphans, by the numbers of the trees that live
	next    uint64                   // the last number that was given to a process
	closed  bool                     // nothing is started any more

	quit chan struct{}
	work sync.WaitGroup // reapOrphans
}

// NewGuard finds the means of this machine and takes them into use: we become
// the parent of whatever a process of ours leaves behind, for example. First it
// ends what servers that were killed have left. What the machine lacks is a
// reason of Mechanisms; an error is about Dir. The caller must Close it, once all
// processes that were started with it have ended.
func NewGuard(o GuardOptions) (*Guard, error) {
	g := &Guard{log: o.Log, mechanisms: Mechanisms{Pdeathsig: true}}
	if g.log == nil {
		g.log = zap.NewNop()
	}
	g.started, g.reaped, g.quit = map[int]bool{}, map[uint64]time.Duration{}, make(chan struct{})
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("guard processes: %w", err)
	}
	g.sweepDead(o.Dir)
	t, err := proctree.TakeLineageTag()
	if err != nil {
		g.lacks("no tag, nor what rests on it", err)
		return g, nil
	}
	g.tag, g.mechanisms.Tag = t, true
	if g.cgroups, err = findCgroups(t); err != nil {
		g.lacks("no cgroups", err)
	} else {
		g.mechanisms.CgroupKill, g.mechanisms.CgroupMemory, g.mechanisms.CgroupTasks = true, g.cgroups.memory, g.cgroups.tasks
	}
	if g.record, err = newRecord(o.Dir, t, g.cgroups); err != nil {
		if g.cgroups != nil {
			g.cgroups.remove()
		}
		return nil, fmt.Errorf("guard processes: %w", err)
	}
	if err := adopt(); err != nil {
		g.lacks("no subreaper", err)
	} else {
		g.mechanisms.Subreaper = true
		ended := make(chan os.Signal, 1)      // one tells of all
		signal.Notify(ended, syscall.SIGCHLD) // before anything is started whose end it tells
		g.work.Go(func() { g.reapOrphans(ended) })
	}
	if g.watchdog, err = startWatchdog(g.record, g.log); err != nil {
		g.lacks("no watchdog", err)
	} else {
		g.mechanisms.Watchdog = true
	}
	return g, nil
}

func (g *Guard) lacks(what string, err error) {
	g.mechanisms.Reasons = append(g.mechanisms.Reasons, what+": "+err.Error())
}

// adopt makes this process the parent of orphans.
func adopt() error {
	if !proctree.ListsChildren() {
		return errors.New("the kernel keeps no list of children")
	}
	return proctree.SetSubreaper(true)
}

// relist is how long after a list of children that may lack some another one is made: no
// signal need come until then.
const relist = 100 * time.Millisecond

// reapOrphans takes note of the end of processes that came to us while what
// they come from lives on.
//
// None is missed. The kernel makes a process a zombie, or hands a zombie over, before it sends
// the signal, and each list is read after a signal was taken: an end that the list does not
// have yet sends another. One that is alive when it is handed over sends one at its end.
func (g *Guard) reapOrphans(ended chan os.Signal) {
	defer signal.Stop(ended)
	var again <-chan time.Time // after children that could not all be listed
	for {
		select {
		case <-g.quit:
			return
		case <-ended:
		case <-again:
		}
		again = nil
		if _, err := g.adopted(g.isOurs, false); err != nil {
			again = time.After(relist)
		}
	}
}

func (g *Guard) isOurs(number uint64) bool { return g.tag.Has(number) && number != g.tag.Own() }

// Close ends what is left of the processes that were started with the guard,
// which is nothing as a rule, and gives up its means. Nothing can be started with
// it from then on, and a process that is being started is ended too. A later call
// does nothing.
func (g *Guard) Close() error {
	g.mu.Lock()
	again := g.closed
	g.closed = true
	g.mu.Unlock()
	if again || g.tag == 0 {
		return nil
	}
	reap := func() { _, _ = g.adopted(g.isOurs, false) } // what is left is found by the tag
	stuck, err := proctree.EndLineage(g.isOurs, reap)
	close(g.quit)
	g.work.Wait()
	reap() // those that have ended since
	if g.cgroups != nil {
		g.cgroups.remove()
	}
	g.watchdog.stop()
	_ = proctree.SetSubreaper(false) // it was possible to become one
	err = errors.Join(err, g.record.remove())
	if len(stuck) > 0 {
		err = errors.Join(err, fmt.Errorf("processes that cannot be ended: %v", stuck))
	}
	if err != nil {
		return fmt.Errorf("end the guard: %w", err)
	}
	return nil
}
