package members_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/format"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/members"
	"nexus.internal/supervisor/cluster/register"
)

func TestMain(m *testing.M) { clustertest.Verify(m) }

// patience bounds what machines do on a busy one.
const patience = 2 * time.Minute

// errNotYet says that something is not known yet.
var errNotYet = errors.New("not yet")

// bound are agents that no machine takes over.
type bound string

func (b bound) Waits(_ context.Context, agent string) (bool, error) {
	return strings.HasPrefix(agent, string(b)), nil
}

// machine is one of a cluster, with all that says who is in it.
type machine struct {
	*clustertest.Machine
	node    *cluster.Node
	members *members.Members
	later   *format.Later
	dir     string
	close   []func()
}

// joins has a machine of the cluster know the others.
func joins(t *testing.T, of *clustertest.Machine, since time.Time) *machine {
	t.Helper()
	m := &machine{Machine: of, later: format.NewLater(nil), dir: t.TempDir()}
	t.Cleanup(m.leave)
	r, err := register.Open(of.NATS(), register.Options{Cluster: "farm", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	m.close = append(m.close, r.Close)
	m.members, err = members.Open(members.Options{Machine: of.Name(), Joined: 3, System: of.System(), Register: r, Since: since, Dir: m.dir, Later: m.later})
	if err != nil {
		t.Fatal(err)
	}
	m.close = append(m.close, m.members.Close)
	m.node, err = cluster.Join(of.NATS(), cluster.Options{Cluster: "farm", Machine: of.Name(), Replicas: 3, Members: m.members})
	if err != nil {
		t.Fatal(err)
	}
	m.close = append(m.close, m.node.Close)
	return m
}

// leave ends what the machine does, and its server.
func (m *machine) leave() {
	for len(m.close) > 0 {
		last := len(m.close) - 1
		m.close[last]()
		m.close = m.close[:last]
	}
	m.Stop()
}

func until(t *testing.T, what string, so func() error) {
	t.Helper()
	deadline := time.After(patience)
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for {
		err := so()
		if err == nil {
			return
		}
		select {
		case <-every.C:
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// knows waits until a machine knows others with their states, and how many there are to be.
func (m *machine) knows(t *testing.T, want string, count int) {
	t.Helper()
	until(t, fmt.Sprintf("%s knows %s of %d", m.Name(), want, count), func() error {
		var all []string
		for _, of := range m.node.Machines() {
			all = append(all, of.Name+" "+string(of.State))
		}
		if got := strings.Join(all, ", "); got != want || m.members.Count() != count || m.node.Check() != nil {
			return fmt.Errorf("it knows %s of %d: %v", got, m.members.Count(), m.node.Check())
		}
		return nil
	})
}

// remove removes a machine, and waits until that is settled, and until the machines agree on anything at all.
func (m *machine) remove(t *testing.T, name string, force bool) (r members.Removal, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = cluster.ErrNoQuorum
	for errors.Is(err, cluster.ErrNoQuorum) && ctx.Err() == nil {
		r, err = m.members.Remove(ctx, m.node, bound("bound"), name, force)
	}
	if err == nil && len(r.Unsettled) > 0 {
		err = errors.New(strings.Join(r.Unsettled, "; "))
	}
	return r, err
}

// refuses says that a machine is not removed.
func (m *machine) refuses(t *testing.T, name, want string) {
	t.Helper()
	_, err := m.members.Remove(t.Context(), m.node, bound(""), name, false)
	if _, ok := errors.AsType[*members.RefusedError](err); !ok || !strings.Contains(err.Error(), want) {
		t.Errorf("remove %s: %v, want %q", name, err, want)
	}
}

// keeps has the machines agree on something, and waits for what they agreed on before.
func (m *machine) keeps(t *testing.T, number int) {
	t.Helper()
	agent := fmt.Sprintf("agent%d", number)
	if _, err := m.node.Claim(t.Context(), agent, 0); err != nil {
		t.Fatalf("after a removal nothing is agreed on: %v", err)
	}
	for before := 1; before <= number; before++ {
		until(t, "what was agreed on before is known", func() error { // another machine may have heard of it a moment later
			if _, known := m.node.Owner(fmt.Sprintf("agent%d", before)); !known {
				return fmt.Errorf("agent%d is nobody's", before)
			}
			return nil
		})
	}
}

// replicas are the machines that have the claims, without those that are away.
func replicas(t *testing.T, m *machine) (on int) {
	t.Helper()
	stream, err := m.JetStream.Stream(t.Context(), "KV_nexus_farm_agents")
	var info *jetstream.StreamInfo
	if err == nil {
		info, err = stream.Info(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	on = 1
	for _, p := range info.Cluster.Replicas {
		if p.Current && !p.Offline {
			on++
		}
	}
	return on
}

// A machine that is gone is removed: nobody knows it or counts it any more, and a majority is one of those that are left. Another one that joins has what it had. Each
// removal has settled when it returns: the next machine may be lost, and removed, at once.
func TestRemove(t *testing.T) {
	t.Parallel()
	var all []*machine
	for _, of := range clustertest.Start(t, 3) {
		all = append(all, joins(t, of, time.Now()))
	}
	a, b, c := all[0], all[1], all[2]
	for _, m := range all {
		m.knows(t, "a up, b up, c up", 3)
	}
	until(t, "b has an agent", func() error { _, err := b.node.Claim(t.Context(), "bound", 0); return err })
	a.keeps(t, 1)
	a.refuses(t, "a", "is the one that is asked")
	a.refuses(t, "z", "no machine of that name is known")
	a.refuses(t, "b", "nexus cluster drain b")
	if err := b.node.Drain(true); err != nil {
		t.Fatal(err)
	}
	until(t, "a machine that drains is refused while it has agents", func() error {
		_, err := a.members.Remove(t.Context(), a.node, bound(""), "b", false)
		if err == nil || !strings.Contains(err.Error(), "still has 1 agents") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})

	b.leave()
	if got, err := a.remove(t, "b", false); err != nil || strings.Join(got.Waiting, " ") != "bound" {
		t.Fatalf("those that wait are %q, %v", got.Waiting, err)
	}
	for _, m := range []*machine{a, c} {
		m.knows(t, "a up, b removed, c up", 2) // as an agent waits for it
	}
	a.keeps(t, 2)
	if _, err := a.remove(t, "b", false); err != nil {
		t.Errorf("what was removed is removed again: %v", err)
	}
	a.refuses(t, "c", "c is up")
	if _, err := a.members.Remove(t.Context(), a.node, bound(""), "c", true); err == nil || !strings.Contains(err.Error(), "a cluster has at least 2 machines") {
		t.Errorf("of two machines one is removed: %v", err)
	}

	d := joins(t, clustertest.Add(t, a.Machine, b.Machine, c.Machine), time.Now())
	if _, err := d.members.Remove(t.Context(), d.node, bound("bound"), "b", false); err != nil { // before it has read who was removed
		t.Errorf("what was removed is removed again by a machine that joins: %v", err)
	}
	for _, m := range []*machine{a, c, d} {
		m.knows(t, "a up, b removed, c up, d up", 3)
	}
	until(t, "three machines have the claims", func() error {
		if on := replicas(t, a); on != 3 {
			return fmt.Errorf("%d have them", on)
		}
		return nil
	})
	c.leave()
	if _, err := d.remove(t, "c", false); err != nil {
		t.Fatalf("a machine that has ended is not removed: %v", err)
	}
	d.keeps(t, 3)
	a.keeps(t, 4)

	a.leave()
	until(t, "without a majority nothing is removed", func() error {
		_, err := d.members.Remove(t.Context(), d.node, bound(""), "a", false)
		if _, ok := errors.AsType[*members.RefusedError](err); !ok && !errors.Is(err, cluster.ErrNoQuorum) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
}

// A machine that is up learns that it was removed. If it begins anew, it is one again, but for one whose certificate is older than that: engines refuse it.
func TestRemovedComesBack(t *testing.T) {
	t.Parallel()
	var all []*machine
	certified := time.Now().Truncate(time.Second).Add(-time.Second)
	for _, of := range clustertest.Start(t, 4) {
		all = append(all, joins(t, of, certified))
	}
	a, b := all[0], all[1]
	for _, m := range all {
		m.knows(t, "a up, b up, c up, d up", 4)
	}
	removed := make(chan error, 1)
	go func() { // which is waited for
		_, err := a.remove(t, "b", true)
		removed <- err
	}()
	select {
	case <-b.members.Out():
	case <-time.After(patience):
		t.Fatal("a machine is not told that it was removed")
	}
	b.leave()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	for _, m := range []*machine{a, all[2], all[3]} {
		m.knows(t, "a up, c up, d up", 3)
		until(t, "the engine knows", func() error {
			refused, err := cluster.ReadRemoved(m.dir)
			if err == nil && refused.Refuse("b", certified) == nil {
				err = fmt.Errorf("it knows %v", refused)
			}
			return err
		})
	}
	refused, err := cluster.ReadRemoved(a.dir)
	if err != nil || refused.Refuse("c", certified) != nil || refused.Refuse("b", time.Now().Add(time.Second)) != nil {
		t.Errorf("more is refused than should be: %v, %v", refused, err)
	}
	b.Start()
	b = joins(t, b.Machine, time.Now().Add(time.Second))
	for _, m := range []*machine{a, b} {
		until(t, "b is a machine again", func() error {
			for _, of := range m.node.Machines() {
				if of.Name == "b" && of.State == cluster.Up && !m.members.Removed("b") {
					return nil
				}
			}
			return fmt.Errorf("%v", m.node.Machines())
		})
	}
	// NATS counts it after five minutes, or at once if another machine was elected meanwhile.
	until(t, "b knows whether NATS counts it", func() error {
		if counted := a.members.Count() == 4; b.members.Counts("b") != counted || a.members.Counts("b") != counted || !a.members.Counts("a") {
			return fmt.Errorf("it says %t, and a counts %d", b.members.Counts("b"), a.members.Count())
		}
		return nil
	})
}

// A machine that was removed and has joined anew is none of those whose majority decides, until NATS counts it: without one of the two that count, nothing is agreed on, and each
// machine that is left says so, as long as nobody leads them.
func TestUncounted(t *testing.T) {
	t.Parallel()
	var all []*machine
	for _, of := range clustertest.Start(t, 3) {
		all = append(all, joins(t, of, time.Now().Truncate(time.Second).Add(-time.Second)))
	}
	a, b, c := all[0], all[1], all[2]
	for _, m := range all {
		m.knows(t, "a up, b up, c up", 3)
	}
	removed := make(chan error, 1)
	go func() { // which is waited for
		_, err := a.remove(t, "c", true)
		removed <- err
	}()
	select {
	case <-c.members.Out():
	case <-time.After(patience):
		t.Fatal("a machine is not told that it was removed")
	}
	c.leave()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	c.Start()
	c = joins(t, c.Machine, time.Now().Add(time.Second))
	for _, m := range []*machine{a, b, c} {
		m.knows(t, "a up, b up, c up", 2)
		until(t, m.Name()+" knows that c is not counted", func() error {
			if m.members.Counts("c") || !m.members.Counts("a") || !m.members.Counts("b") {
				return errNotYet
			}
			return nil
		})
	}
	a.leave()
	for _, m := range []*machine{b, c} {
		for range 3 { // as long as the others are asked for who counts
			until(t, m.Name()+" knows that there is no majority", func() error {
				if err := m.node.Check(); !errors.Is(err, cluster.ErrNoQuorum) || m.members.Counts("c") {
					return fmt.Errorf("it says %w, and that c counts: %t", err, m.members.Counts("c"))
				}
				return nil
			})
			pause := time.NewTimer(2 * time.Second)
			<-pause.C
			if err := m.node.Check(); !errors.Is(err, cluster.ErrNoQuorum) {
				t.Errorf("%s has found a majority: %v", m.Name(), err)
			}
		}
	}
	a.Start()
	a = joins(t, a.Machine, time.Now())
	for _, m := range []*machine{a, b, c} {
		until(t, m.Name()+" agrees with the others", m.node.Check)
	}
}
