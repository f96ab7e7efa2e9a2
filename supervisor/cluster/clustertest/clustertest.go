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
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/supervisor/cluster/engine"
)

// Machine is one machine of a cluster. Its methods are called by one goroutine.
type Machine struct {
	// JetStream is by the machine's own server. It is another one after each Start.
	JetStream jetstream.JetStream

	t       testing.TB
	options engine.Options
	engine  *engine.Engine // nil while it does not run
	nc      *nats.Conn
	closed  chan struct{} // once nc is
}

// Start starts n machines, which end with the test.
func Start(t testing.TB, n int) (machines []*Machine) {
	t.Helper()
	join := Addresses(t, n)
	for i, listen := range join {
		machines = append(machines, &Machine{t: t, options: engine.Options{
			Name: "farm", Machine: string(rune('a' + i)), Listen: listen, Join: join, Dir: t.TempDir(),
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
	closed := make(chan struct{})
	nc, err := nats.Connect(e.URL(), nats.Token(e.Secret()), nats.MaxReconnects(-1), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		e.Close()
		m.t.Fatal(err)
	}
	m.engine, m.nc, m.closed = e, nc, closed
	if m.JetStream, err = jetstream.New(nc); err != nil {
		m.t.Fatal(err)
	}
}

// NATS is the connection to the machine's own server. It is another one after each Start.
func (m *Machine) NATS() *nats.Conn { return m.nc }

// Name is the machine's.
func (m *Machine) Name() string { return m.options.Machine }

// Stop stops it, if it runs.
func (m *Machine) Stop() {
	if m.engine == nil {
		return
	}
	m.nc.Close()
	<-m.closed
	m.engine.Close()
	m.engine = nil
}
