package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"nexus.internal/bridge"
	"nexus.internal/bridge/forward"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
)

// cluster is several machines in one process, whose connections are pipes.
type cluster struct {
	mu sync.Mutex // guards what follows
	// claims are the machines of agents.
	claims map[string]string
	runs   map[string]string           // that a machine has claimed
	in     map[string]chan net.Conn    // of each machine
	links  map[string][]net.Conn       // that a machine takes; closed ones, too
	down   map[string]bool             // machines that are not reached
	split  bool                        // nothing is agreed on
	blind  bool                        // nor is known what was
	since  time.Time                   // when all was known last; zero for never
	hidden bool                        // a machine knows of no claim but its own
	asked  func(machine string) string // says whose all agents are; nil for what is claimed
	labels map[string]map[string]string
	load   map[string]forward.Load
	drains map[string]bool     // machines that are to have no agents
	moves  bool                // agents of machines that are down are taken over
	slow   chan struct{}       // closed once files of agents are fetched, unless their names begin with "asked"; nil if they are at once
	had    map[string][]string // machines that have files of an agent
	hears  map[string]httpd.Listener
}

// newCluster is a cluster without servers.
func newCluster(names ...string) *cluster {
	c := &cluster{
		claims: map[string]string{}, runs: map[string]string{}, in: map[string]chan net.Conn{}, links: map[string][]net.Conn{}, down: map[string]bool{},
		labels: map[string]map[string]string{}, load: map[string]forward.Load{}, had: map[string][]string{}, drains: map[string]bool{}, hears: map[string]httpd.Listener{},
	}
	for _, name := range names {
		c.in[name] = make(chan net.Conn)
	}
	return c
}

// join starts the server of a machine; change may adapt its options and its children.
func (c *cluster) join(t *testing.T, name string, change func(*rig, *bridge.Options)) *rig {
	t.Helper()
	return rigged(t, func(r *rig, o *bridge.Options) {
		if change != nil {
			change(r, o)
		}
		o.Machines = &machine{c, name}
	})
}

// clusterOf starts a server for each machine.
func clusterOf(t *testing.T, change func(*rig, *bridge.Options), names ...string) (*cluster, []*rig) {
	t.Helper()
	c := newCluster(names...)
	var all []*rig
	for _, name := range names {
		all = append(all, c.join(t, name, change))
	}
	return c, all
}

// cut breaks the connections to a machine, which is not reached from now on.
func (c *cluster) cut(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[name] = true
	for _, link := range c.links[name] {
		link.Close()
	}
	c.links[name] = nil
}

// mend has a machine reached again.
func (c *cluster) mend(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[name] = false
}

// owner is the machine that has claimed an agent.
func (c *cluster) owner(agent string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[agent]
}

// runOwner is the machine that has claimed a run.
func (c *cluster) runOwner(run string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[run]
}

// machine is one of a cluster.
type machine struct {
	*cluster
	name string
}

var _ bridge.Machines = (*machine)(nil)

func (m *machine) Self() string { return m.name }

func (m *machine) All() []forward.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []forward.Machine
	for _, name := range slices.Sorted(maps.Keys(m.in)) {
		one := forward.Machine{Name: name, State: forward.Up, Labels: m.labels[name], Version: "test", Load: m.load[name], Draining: m.drains[name]}
		if m.down[name] {
			one.State = forward.Lost
		}
		for _, of := range m.claims {
			if of == name {
				one.Claims++
			}
		}
		all = append(all, one)
	}
	return all
}

func (m *machine) Owner(agent string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked != nil {
		return m.asked(m.name), true
	}
	name, ok := m.claims[agent]
	if m.hidden && name != m.name {
		return "", false
	}
	return name, ok
}

func (m *machine) Owned() (agents []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for agent, name := range m.claims {
		if name == m.name {
			agents = append(agents, agent)
		}
	}
	return agents
}

func (m *machine) Claim(_ context.Context, agent string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.split || agent == "disputed" {
		return "", errors.New("a majority of the machines is not reached")
	}
	if _, ok := m.claims[agent]; !ok {
		m.claims[agent] = m.name
		m.had[agent] = append(m.had[agent], m.name)
	}
	return m.claims[agent], nil
}

func (m *machine) Release(_ context.Context, agent string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims[agent] == m.name {
		delete(m.claims, agent)
	}
	return nil
}

func (m *machine) ClaimRun(ctx context.Context, run string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.split {
		return "", errors.New("a majority of the machines is not reached")
	}
	if _, ok := m.runs[run]; !ok {
		m.runs[run] = m.name
	}
	return m.runs[run], nil
}

func (m *machine) RunOwner(_ context.Context, run string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.split {
		return "", errors.New("a majority of the machines is not reached")
	}
	return m.runs[run], nil
}

func (m *machine) ReleaseRun(ctx context.Context, run string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[run] == m.name {
		delete(m.runs, run)
	}
	return nil
}

func (m *machine) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blind {
		return errors.New("a majority of the machines is not reached")
	}
	return nil
}

func (m *machine) Cut() (since time.Time, err error) {
	if err := m.Check(); err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.since, err
	}
	return time.Time{}, nil
}

func (m *machine) Tell(text []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, l := range m.hears {
		if name != m.name {
			l.Heard(text)
		}
	}
	return nil
}

func (m *machine) Hear(l httpd.Listener) (end func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hears[m.name] = l
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.hears, m.name)
	}, nil
}

func (m *machine) Ship(context.Context, string) error { return nil }

func (m *machine) Leave(string) error { return nil }

func (m *machine) Forget(context.Context, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.split {
		return supervisor.ErrNoMajority
	}
	return nil
}

func (m *machine) Prepare(_ context.Context, agent string) error {
	m.mu.Lock()
	slow := m.slow
	m.mu.Unlock()
	if slow != nil && !strings.HasPrefix(agent, "asked") {
		<-slow
	}
	return nil
}

// Orphans are the agents of machines that are down, for the first machine that is up.
func (m *machine) Orphans(context.Context) (agents []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.in)) {
		if name == m.name {
			break
		}
		if !m.down[name] {
			return nil
		}
	}
	for agent, name := range m.claims {
		if m.moves && m.down[name] {
			agents = append(agents, agent)
		}
	}
	return agents
}

func (m *machine) TakeOver(_ context.Context, agent string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claims[agent] = m.name
	m.had[agent] = append(m.had[agent], m.name)
	return nil
}

// Taken are the agents that this machine is told to have had.
func (m *machine) Taken(context.Context) (agents []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for agent, by := range m.had {
		if m.claims[agent] != m.name && slices.Contains(by, m.name) && !strings.HasPrefix(agent, ".") { // of those nothing is shipped
			agents = append(agents, agent)
		}
	}
	return agents
}

func (m *machine) GiveUp(_ context.Context, agent string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.had[agent] = slices.DeleteFunc(m.had[agent], func(by string) bool { return by == m.name })
	return nil
}

// LookAt says that nothing was shipped.
func (*machine) LookAt(context.Context, string, func(*sessions.Catalogue) error) error { return nil }

func (m *machine) Draining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drains[m.name]
}

func (m *machine) Drain(on bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drains[m.name] = on
	return nil
}

// Takers are all other machines, but for what is bound.
func (m *machine) Takers(agent string) (machines []string, why string) {
	if agent == "bound" {
		return nil, "it is bound"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.in)), func(name string) bool { return name == m.name }), ""
}

func (m *machine) HandOver(_ context.Context, agent, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.split {
		return supervisor.ErrNoMajority
	}
	m.claims[agent] = to
	return nil
}

func (m *machine) Dial(ctx context.Context, to string) (net.Conn, error) {
	m.mu.Lock()
	in, down := m.in[to], m.down[to]
	m.mu.Unlock()
	if in == nil || down {
		return nil, fmt.Errorf("the machine %s is not reached", to)
	}
	near, far := net.Pipe()
	select {
	case in <- far:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.links[to] = append(m.links[to], near, far)
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *machine) Listen() (net.Listener, error) {
	return &pipes{m.in[m.name], make(chan struct{}), sync.Once{}}, nil
}

// pipes are the connections that a machine takes.
type pipes struct {
	in     chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
