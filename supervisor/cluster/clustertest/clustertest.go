// Package clustertest runs the servers of NATS of a cluster in the process of a test.
//
//	machines := clustertest.Start(t, 3)
//	machines[0].JetStream // of the first machine
//	machines[0].Stop()    // as if it were off; Start begins it again
package clustertest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/engine"
)

// Verify runs the tests of a package, and looks that they leave no goroutine but the one that each server of NATS has until its process ends, as it has no port for clients.
func Verify(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).StartRouting"))
}

// Machine is one machine of a cluster. Its methods are called by one goroutine.
type Machine struct {
	// JetStream is by the machine's own server. It is another one after each Start.
	JetStream jetstream.JetStream

	t       testing.TB
	options engine.Options
	engine  *engine.Engine // nil while it does not run
	nc      *nats.Conn
	system  *nats.Conn
	closed  sync.WaitGroup // of the connections
}

// Start starts n machines, which end with the test.
func Start(t testing.TB, n int) (machines []*Machine) {
	t.Helper()
	join := Addresses(t, n)
	for i, listen := range join {
		machines = append(machines, &Machine{t: t, options: engine.Options{
			Name: "farm", Machine: string(rune('a' + i)), Listen: listen, Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats"),
		}})
	}
	t.Cleanup(func() {
		for _, m := range machines {
			m.Stop()
		}
	})
	for _, m := range machines {
		m.Start()
	}
	return machines
}

// Add starts a further machine of the cluster that the machines are, which ends with the test.
func Add(t testing.TB, machines ...*Machine) *Machine {
	t.Helper()
	o := machines[len(machines)-1].options
	o.Machine, o.Listen, o.Dir = string(o.Machine[0]+1), Addresses(t, 1)[0], t.TempDir()
	o.Socket = filepath.Join(t.TempDir(), "nats")
	o.Join = append(slices.Clone(o.Join), o.Listen)
	m := &Machine{t: t, options: o}
	t.Cleanup(m.Stop)
	m.Start()
	return m
}

// Addresses are free ones on loopback, of a host that nobody else takes by chance: others get a free port of another one.
func Addresses(t testing.TB, n int) (all []string) {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	for range n {
		l, err := net.Listen("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// Start starts the machine, with what it had.
func (m *Machine) Start() {
	m.t.Helper()
	e, err := engine.Start(m.options)
	if err != nil {
		m.t.Fatal(err)
	}
	m.engine = e
	ready, err := e.Ready()
	if err != nil {
		m.t.Fatal(err)
	}
	m.nc = m.connect(nats.Token(ready.Token))
	m.system = m.connect(nats.UserInfo(cluster.SystemUser, ready.Token))
	if m.JetStream, err = jetstream.New(m.nc); err != nil {
		m.t.Fatal(err)
	}
}

// StartEmpty starts the machine, without what it had.
func (m *Machine) StartEmpty() {
	m.t.Helper()
	m.options.Dir = m.t.TempDir()
	m.Start()
}

func (m *Machine) connect(as nats.Option) *nats.Conn {
	m.t.Helper()
	m.closed.Add(1)
	nc, err := nats.Connect("", cluster.Dialer(m.engine), as, nats.MaxReconnects(-1), nats.ClosedHandler(func(*nats.Conn) { m.closed.Done() }))
	if err != nil {
		m.closed.Done()
		m.engine.Close()
		m.t.Fatal(err)
	}
	return nc
}

// NATS is the connection to the machine's own server. It is another one after each Start.
func (m *Machine) NATS() *nats.Conn { return m.nc }

// Ready is how clients reach the machine's own server.
func (m *Machine) Ready() cluster.EngineReady {
	m.t.Helper()
	ready, err := m.engine.Ready()
	if err != nil {
		m.t.Fatal(err)
	}
	return ready
}

// System is the connection of its system's user.
func (m *Machine) System() *nats.Conn { return m.system }

// Name is the machine's.
func (m *Machine) Name() string { return m.options.Machine }

// Stop stops it, if it runs.
func (m *Machine) Stop() {
	if m.engine == nil {
		return
	}
	m.nc.Close()
	m.system.Close()
	m.closed.Wait()
	m.engine.Close()
	m.engine = nil
}
