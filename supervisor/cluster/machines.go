package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"nexus.internal/protocol/format"
	"nexus.internal/supervisor/cluster/tunnel"
)

// State is whether a machine is there.
type State string

// States of a machine.
const (
	Up State = "up"
	// Lost is a machine that was not heard of for [lostAfter]: it has failed, is frozen, or cut off.
	Lost State = "lost"
	// Left is one that has ended.
	Left State = "left"
	// RemovedState is of one that was removed from the cluster, and has agents that wait for a machine of its name.
	RemovedState State = "removed"
)

const (
	// beatEvery is how often a machine says what it is and takes.
	beatEvery = time.Second
	// lostAfter is after how long without a word a machine is lost.
	lostAfter = 5 * time.Second
	// deafAfter is how long a machine does not hear itself that hears nobody.
	deafAfter = 3 * beatEvery
	// keptMachines bounds those that are remembered, the lost ones, too.
	keptMachines = 1000
)

// Machine is one of the cluster.
type Machine struct {
	Name string `json:"name"`
	// Process tells a server from another one that was given the same name.
	Process string            `json:"process"`
	Labels  map[string]string `json:"labels"`
	Version string            `json:"version"`
	Load    Load              `json:"load"`
	State   State             `json:"state"`
	// Draining says that it takes no agents, and gives others those that they can have.
	Draining bool `json:"draining,omitzero"`
	// Shared are the directories that it says others have, too.
	Shared []string `json:"shared,omitempty"`
	// Adopts says that it knows of an agent that it takes over also what was accepted since the files were shipped (package accepted).
	Adopts bool `json:"adopts,omitzero"`
	// Objects says that it reads what was shipped of an agent's files to the object store (package mirror).
	Objects bool `json:"objects,omitzero"`
	// Twins are the machines that two servers are, as it hears.
	Twins []string `json:"twins,omitempty"`
	// Claims is how many agents it has, by what the machines agreed on, as it is known here.
	Claims int `json:"-"`
	// Heard is when it was heard of last, by the clock of who says so; zero if it was not since that one runs. Then no more is known of it than its name.
	Heard time.Time `json:"heard"`
}

// Machines are those that were heard of since this one runs, by name, without those that were removed; and those that have agents all the same, by what the machines agreed on.
func (n *Node) Machines() []Machine {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := slices.Collect(maps.Values(n.machines))
	all = slices.DeleteFunc(all, func(m Machine) bool { return n.o.Members.Removed(m.Name) })
	for i, m := range all {
		if m.State == Up && m.Name != n.o.Machine && time.Since(m.Heard) > lostAfter {
			all[i].State = Lost
		}
	}
	for name := range n.claimants {
		_, heard := n.machines[name]
		switch removed := n.o.Members.Removed(name); {
		case name == Unreadable, name == n.o.Machine:
		case removed:
			all = append(all, Machine{Name: name, State: RemovedState})
		case !heard:
			all = append(all, Machine{Name: name, State: Lost})
		}
	}
	for i, m := range all {
		all[i].Claims = n.claimants[m.Name]
	}
	slices.SortFunc(all, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// isUp reports whether a machine is there, as far as is known.
func (n *Node) isUp(name string) bool {
	for _, m := range n.Machines() {
		if m.Name == name {
			return m.State == Up
		}
	}
	return false
}

// Gone reports whether a machine was not heard of for [lostAfter], or has ended that long ago. What this machine could not have
// heard, as it stood still, was cut off or has just begun, says nothing.
func (n *Node) Gone(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name == n.o.Machine || name == Unreadable || n.since.IsZero() || !n.hears() {
		return false
	}
	heard := n.since
	if m, known := n.machines[name]; known && m.Heard.After(heard) {
		heard = m.Heard
	}
	return time.Since(heard) > lostAfter
}

// listened reports whether this machine has heard itself, by NATS, for [lostAfter]. Otherwise it may have stood still, and those that it did not hear are no
// less there for it.
func listened(n *Node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.echo) <= deafAfter && time.Since(n.listens) > lostAfter
}

// hears reports whether this machine hears itself, by NATS, and a majority of the members. mu is held.
func (n *Node) hears() bool { return time.Since(n.echo) <= deafAfter && n.majority() }

// majority reports whether a majority of the members was heard of lately. A machine that is there and none of them, this one or another, is no part of it. mu is held.
func (n *Node) majority() bool {
	heard := 0
	if n.o.Members.Counts(n.o.Machine) {
		heard++
	}
	for name, m := range n.machines {
		if name != n.o.Machine && m.State == Up && time.Since(m.Heard) <= lostAfter && !n.o.Members.Removed(name) && n.o.Members.Counts(name) {
			heard++
		}
	}
	return 2*heard > n.o.Members.Count()
}

// self is what this machine says of itself.
func (n *Node) self(state State) Machine {
	load := Measure(n.o.Agents)
	load.MaxAgents = n.o.MaxAgents
	n.mu.Lock()
	kept := n.kept
	n.mu.Unlock()
	return Machine{
		Name: n.o.Machine, Process: n.process, Labels: kept.over(n.o.Labels), Version: n.o.Version, Load: load, State: state, Draining: kept.Draining, Shared: n.o.Shared,
		Adopts: true, Objects: true, Twins: Twins(n), Heard: time.Now(),
	}
}

// beat says at once, and from then on, what this machine is, until the node is closed.
func (n *Node) beat(ctx context.Context) {
	every := time.NewTicker(beatEvery)
	defer every.Stop()
	var failed bool
	for {
		err := n.say(n.self(Up))
		if err != nil && !failed {
			n.log.Warn("the other machines are not told of this one", zap.Error(err))
		}
		failed = err != nil
		if n.Check() == nil {
			n.mu.Lock()
			n.whole = time.Now()
			n.mu.Unlock()
		}
		if listened(n) {
			for _, m := range n.Machines() {
				if m.State != Up { // whoever waits for it waits in vain
					n.tunnel.Break(n.o.at(m.Name), lostAfter, tunnel.ErrSilent)
				}
			}
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			_ = n.say(n.self(Left)) // else they find out
			return
		}
	}
}

func (n *Node) say(m Machine) error {
	n.mu.Lock()
	n.machines[m.Name] = m
	n.mu.Unlock()
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return n.nc.Publish(n.o.beats(), text)
}

// UnknownVersion is the version of a machine that says of itself in a later format what it is.
const UnknownVersion = "unknown"

// readBeat reads what a machine says of itself. Each format has its name, its process and its state; of a later one no more is known, and the machine is up unless it says that it
// has left. later is the error then.
func readBeat(text []byte) (m Machine, later, err error) {
	err = format.Beat.Decode(text, &m)
	if _, ok := errors.AsType[*format.LaterError](err); !ok {
		return m, nil, err
	}
	var said struct {
		Name    string         `json:"name"`
		Process string         `json:"process"`
		State   jsontext.Value `json:"state"`
	}
	later, err = err, json.Unmarshal(text, &said)
	m = Machine{Name: said.Name, Process: said.Process, State: Up, Version: UnknownVersion}
	if string(said.State) == `"`+string(Left)+`"` {
		m.State = Left
	}
	return m, later, err
}

// heard takes what another machine says of itself.
func (n *Node) heard(message *nats.Msg) {
	m, later, err := readBeat(message.Data)
	_ = n.o.Later.Note(later)
	if err != nil || !nameForm.MatchString(m.Name) || m.State != Up && m.State != Left {
		n.log.Warn("a machine says what none says", zap.Int("bytes", len(message.Data)), zap.Error(err))
		return
	}
	m.Heard = time.Now() // clocks differ
	switch {
	case m.Name != n.o.Machine || m.Process == n.process:
		if n.hear(m) { // what was dialled to the process before waits in vain
			n.tunnel.Break(n.o.at(m.Name), beatEvery, tunnel.ErrAnew)
		}
	case m.State == Up:
		n.mu.Lock()
		defer n.mu.Unlock()
		noteTwin(n, m.Name, m.Heard)
	}
}

// hear notes what a machine says of itself, and reports whether its server was started anew since it said so last. Two servers that are one machine say it by turns, with no
// pause between.
func (n *Node) hear(m Machine) (anew bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	heard, many := n.hears(), n.majority()
	defer func() {
		if !many && n.majority() { // others may have claimed meanwhile what is known here as it was
			n.behind = true
			select {
			case n.reheard <- struct{}{}:
			default:
			}
		}
		if !heard && n.hears() && !n.since.IsZero() {
			n.since = m.Heard // of those that it did not hear it knows nothing yet
		}
	}()
	if m.Name == n.o.Machine {
		if m.Heard.Sub(n.echo) > deafAfter {
			n.listens = m.Heard
		}
		n.echo = m.Heard
		return false
	}
	before, known := n.machines[m.Name]
	if !known && len(n.machines) >= keptMachines {
		return false
	}
	if known && before.Process != m.Process && before.State == Up && m.State == Up {
		hearTwin(n, m.Name, before.Process, m.Process, m.Heard)
	}
	if slices.Contains(m.Twins, n.o.Machine) {
		noteTwin(n, n.o.Machine, m.Heard)
	}
	if n.machines[m.Name] = m; !known || before.State != m.State || m.Heard.Sub(before.Heard) > lostAfter {
		n.log.Info("machine", zap.String("machine", m.Name), zap.String("state", string(m.State)), zap.String("version", m.Version))
	}
	return known && before.Process != m.Process && m.State == Up && m.Heard.Sub(before.Heard) > beatEvery*3/2
}
