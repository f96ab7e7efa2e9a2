package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster"
)

// Removal is how far the removal of a machine is.
type Removal struct {
	// Unsettled is what is not as it is to be yet, a sentence each: groups of Raft that have no leader or still count the machine, streams on too few
	// machines, and agents that none has taken over. It is empty once all is done.
	Unsettled []string
	// Waiting are the agents of the machine that none takes over, by name: their directory is shared with none that is up.
	Waiting []string
}

// Agents tell of those whose machine is gone.
type Agents interface {
	// Waits reports within a bounded time whether an agent of another machine stays that machine's, as none that is up may take it over.
	Waits(ctx context.Context, agent string) (bool, error)
}

// RefusedError says why a machine is not removed. Nothing has changed.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

func refused(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// Remove removes a machine: NATS counts its server no more and replaces it where it kept something, the other machines forget it and refuse it, and its agents are
// others' as they are after a loss. It returns once all of that is so, or once ctx has ended; called again, it goes on waiting. The error is a *RefusedError,
// or [cluster.ErrNoQuorum]; after any other, and after that one, the machine may be removed in part, and the same call again goes on.
//
// A machine that is up is refused unless it drains and has given away all agents, or force says so. Its server ends then.
func (m *Members) Remove(ctx context.Context, n *cluster.Node, agents Agents, machine string, force bool) (Removal, error) {
	if err := m.o.Register.Wait(ctx); err != nil {
		return Removal{}, err
	}
	removed, _, err := m.read()
	if err != nil {
		return Removal{}, err
	}
	if _, again := removed[machine]; !again {
		up := slices.ContainsFunc(n.Machines(), func(of cluster.Machine) bool { return of.Name == machine && of.State == cluster.Up })
		if err := m.check(ctx, n, machine, force); err != nil {
			return Removal{}, err
		}
		m.log.Warn("a machine is removed from the cluster", zap.String("machine", machine))
		at := time.Now().UTC().Truncate(time.Second)
		said, err := m.change(ctx, func(r cluster.Removed) { r[machine] = at })
		if err != nil {
			return Removal{}, fmt.Errorf("remove the machine %s: %w", machine, err)
		}
		if up { // one that does not answer finds itself cut off
			asked, cancel := context.WithTimeout(ctx, tellPatience)
			_, err = m.o.Register.Ask(asked, removedTopic, said)
			cancel()
			m.log.Info("the machine that is removed was told", zap.String("machine", machine), zap.Error(err))
		}
	}
	if m.o.System != nil {
		if err := m.drop(context.WithoutCancel(ctx), machine); err != nil { // which is bounded
			return Removal{}, err
		}
	}
	waits := map[string]bool{}
	for {
		removal, err := m.look(context.WithoutCancel(ctx), n, agents, machine, waits)
		if err != nil || len(removal.Unsettled) == 0 || ratelimit.Sleep(ctx, pause) != nil {
			return removal, err
		}
	}
}

// check says why a machine is not to be removed.
func (m *Members) check(ctx context.Context, n *cluster.Node, machine string, force bool) error {
	if machine == m.o.Machine {
		return refused("the machine %s is the one that is asked: ask another one", machine)
	}
	var meta group
	if m.o.System != nil {
		var err error
		if meta, err = m.meta(ctx); err != nil {
			return err
		}
	}
	machines, owned := n.Machines(), len(claimed(n, machine))
	_, member := meta.Peers[peerID(machine)]
	at := slices.IndexFunc(machines, func(of cluster.Machine) bool { return of.Name == machine })
	if at < 0 && owned == 0 && !member {
		return refused("no machine of that name is known")
	}
	if at >= 0 && machines[at].State == cluster.Up && !force {
		if !machines[at].Draining {
			return refused("the machine %s is up: drain it first (nexus cluster drain %[1]s), end its server, or force its removal", machine)
		}
		if owned > 0 {
			return refused("the machine %s is up, and still has %d agents or saved sessions: wait for nexus cluster drain %[1]s, end its server, or force its removal", machine, owned)
		}
	}
	if member {
		return enough(meta, machines, machine)
	}
	return nil
}

// enough says why a machine is not to be removed from a group of all: without it, those that are there must be a majority.
func enough(meta group, machines []cluster.Machine, machine string) error {
	left, there := len(meta.Peers), 1 // with this one
	for _, of := range machines {
		if _, counts := meta.Peers[peerID(of.Name)]; counts && of.State == cluster.Up && of.Name != machine {
			there++
		}
	}
	switch {
	case left < 2: // as many as may join (cluster.CheckJoin)
		return refused("a cluster has at least 2 machines, and without %s it would have %d: add another one first (nexus cluster init)", machine, left)
	case 2*there <= left:
		return refused("without %s the cluster would have %d machines, of which %d are there: that is no majority. Bring one back or add one first (nexus cluster init)", machine, left, there)
	}
	return nil
}

// claimed are the agents of a machine, by name.
func claimed(n *cluster.Node, machine string) (agents []string) {
	for agent, claim := range n.Claims() {
		if claim.Machine == machine {
			agents = append(agents, agent)
		}
	}
	slices.Sort(agents)
	return agents
}

// look says how far a removal is. waits is what is known of agents.
func (m *Members) look(ctx context.Context, n *cluster.Node, agents Agents, machine string, waits map[string]bool) (Removal, error) {
	r, left := Removal{Unsettled: []string{}, Waiting: []string{}}, 0
	for _, agent := range claimed(n, machine) {
		stays, known := waits[agent]
		if !known {
			var err error
			if stays, err = agents.Waits(ctx, agent); err != nil {
				r.Unsettled = append(r.Unsettled, fmt.Sprintf("what becomes of the agents of %s is not known yet: %v", machine, err))
				break
			}
			waits[agent] = stays
		}
		if stays {
			r.Waiting = append(r.Waiting, agent)
		} else {
			left++
		}
	}
	if left > 0 {
		r.Unsettled = append(r.Unsettled, fmt.Sprintf("agents that are not taken over yet: %d", left))
	}
	if m.o.System == nil {
		return r, nil
	}
	m.recount(ctx)
	var up []string
	for _, of := range n.Machines() {
		if of.State == cluster.Up && of.Name != machine {
			up = append(up, of.Name)
		}
	}
	all, err := m.askAll(ctx, up)
	if err != nil {
		return r, fmt.Errorf("ask NATS what became of the removal: %w", err)
	}
	r.Unsettled = append(r.Unsettled, unsettled(all, up, machine)...)
	r.Unsettled = append(r.Unsettled, m.streams(ctx, n)...)
	return r, nil
}

// unsettled says what is not as it is to be in the groups of the servers of machines that are up, without one.
func unsettled(all map[string]groups, up []string, without string) (says []string) {
	there, leaders := map[string]bool{}, map[string]group{}
	for name, groups := range all {
		there[peerID(name)] = name != without
		for group, g := range groups {
			if g.ID == g.Leader {
				leaders[group] = g
			}
		}
	}
	for _, name := range up {
		if _, answers := all[name][metaGroup]; !answers {
			says = append(says, fmt.Sprintf("the server of NATS of %s does not answer", name))
			continue
		}
		for group, g := range all[name] {
			leader, led := leaders[group]
			if _, counts := leader.Peers[g.ID]; led && leader.ID != g.ID && !counts {
				continue // it was removed itself lately, and follows
			}
			says = append(says, g.unsettled(name, group, without, there)...)
		}
	}
	slices.Sort(says)
	return says
}

func (g *group) unsettled(machine, name, without string, there map[string]bool) (says []string) {
	about := fmt.Sprintf("group %s, as %s has it", name, machine)
	switch {
	case g.Leader == "":
		says = append(says, about+", has no leader")
	case !there[g.Leader]:
		says = append(says, about+", is led by a machine that does not answer")
	}
	if _, counts := g.Peers[peerID(without)]; counts {
		says = append(says, about+", still counts "+without)
	}
	if g.Size != len(g.Peers)+1 {
		says = append(says, fmt.Sprintf("%s, is to have %d machines and knows %d", about, g.Size, len(g.Peers)+1))
	}
	return says
}

// streams says which are on fewer machines than they are to be, or are not all there yet. A machine that is away is no matter of a removal.
func (m *Members) streams(ctx context.Context, n *cluster.Node) (says []string) {
	ctx, cancel := context.WithTimeout(ctx, dropPatience)
	defer cancel()
	list := n.JetStream().ListStreams(ctx)
	for info := range list.Info() {
		if info.Cluster == nil {
			continue
		}
		on, want := 1+len(info.Cluster.Replicas), min(info.Config.Replicas, m.Count())
		behind := slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current && !p.Offline })
		switch {
		case info.Cluster.Leader == "":
			says = append(says, fmt.Sprintf("stream %s has no leader", info.Config.Name))
		case on != want:
			says = append(says, fmt.Sprintf("stream %s is on %d machines, and is to be on %d", info.Config.Name, on, want))
		case behind:
			says = append(says, fmt.Sprintf("stream %s is not all there on a machine yet", info.Config.Name))
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		says = append(says, fmt.Sprintf("the streams are not known: %v", err))
	}
	return says
}
