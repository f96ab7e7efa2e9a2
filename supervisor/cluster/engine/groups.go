package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
)

const (
	// metaGroup is the group in which all machines agree on who keeps what.
	metaGroup = "_meta_"
	// lookEvery is how often is looked at the groups.
	lookEvery = 5 * time.Second
	// standsFor is for how long a group may stand still that has something to do, though the machines reach each other, before a machine starts its server anew. Elections
	// and a machine that catches up move within less. Each further machine waits longer by standsMore, as one may be enough.
	standsFor, standsMore = 45 * time.Second, 20 * time.Second
)

// watch looks after the groups of machines that agree on something. It was seen that one stood still for minutes, with nothing about it in the log, though all its machines
// were there: they were paused, as they are while they catch up, and whom they were to catch up with was gone. A server that starts anew stands for election again.
type watch struct {
	log   *zap.Logger
	stop  chan struct{}
	ended sync.Once
	done  sync.WaitGroup
	still map[string]stillness // by group

	mu    sync.Mutex // guards what follows
	stuck string     // the group that stands still; "" for none
	looks time.Time  // when the last look began that has not ended; zero for none
}

// stillness is where a group stands, and since when.
type stillness struct {
	leader             string
	committed, applied uint64
	since              time.Time
}

// begin has the groups looked at until end.
func (w *watch) begin(s *server.Server, machine string) {
	w.stop, w.still = make(chan struct{}), map[string]stillness{}
	w.done.Go(func() {
		every := time.NewTicker(lookEvery)
		defer every.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-every.C:
				w.look(s, machine)
			}
		}
	})
}

// end waits for a look, which a server may hold up.
func (w *watch) end() {
	if w.stop != nil { // it was begun
		w.ended.Do(func() { close(w.stop) })
		w.done.Wait()
	}
}

// look looks once.
func (w *watch) look(s *server.Server, machine string) {
	w.set("", time.Now())
	groups, stuck := groupsOf(s), ""
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if w.stands(name, groups, machine, time.Now()) && stuck == "" {
			stuck = name
			state, _ := json.Marshal(groups[name]) // of plain values
			w.log.Error("a group of machines stands still, though they reach each other", zap.String("group", name), zap.String("state", string(state)))
		}
	}
	w.set(stuck, time.Time{})
}

// groupsOf are the groups that a server is one of, by name.
func groupsOf(s *server.Server) map[string]server.RaftzGroup {
	groups := map[string]server.RaftzGroup{}
	for _, account := range []*server.Account{s.SystemAccount(), s.GlobalAccount()} {
		if account == nil {
			continue
		}
		if found := s.Raftz(&server.RaftzOptions{AccountFilter: account.GetName()}); found != nil {
			for _, all := range *found {
				maps.Copy(groups, all)
			}
		}
	}
	return groups
}

func (w *watch) set(stuck string, looks time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = looks
	if stuck != "" {
		w.stuck = stuck
	}
}

// stands notes where a group stands, and reports whether it has stood there for too long.
func (w *watch) stands(name string, groups map[string]server.RaftzGroup, machine string, now time.Time) bool {
	g := groups[name]
	is := stillness{g.Leader, g.Committed, g.Applied, now}
	if before, known := w.still[name]; known && owes(g) && groups[metaGroup].Leader != "" && (stillness{before.leader, before.committed, before.applied, now}) == is {
		is.since = before.since
	}
	w.still[name] = is
	return now.Sub(is.since) >= patienceOf(machine, g)
}

// owes reports whether a group has something to do: to find a leader, or to agree on, or apply, what it has.
func owes(g server.RaftzGroup) bool {
	return g.Leader == "" || g.Committed < g.PIndex || g.Applied < g.Committed
}

// patienceOf is how long a machine lets a group stand: the first of its machines the least.
func patienceOf(machine string, g server.RaftzGroup) time.Duration {
	before := 0
	for _, p := range g.Peers {
		if p.Known && p.Name < machine {
			before++
		}
	}
	return standsFor + time.Duration(before)*standsMore
}

// why says which group stands still, or that the server does not even say.
func (w *watch) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck != "" {
		return fmt.Errorf("the group %s of machines stands still, and the server starts anew", w.stuck)
	}
	if !w.looks.IsZero() && time.Since(w.looks) > standsFor {
		return fmt.Errorf("the server has not said for %v how the machines agree, and starts anew", standsFor)
	}
	return nil
}
