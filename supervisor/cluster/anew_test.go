package cluster_test

import (
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/tunnel"
)

// Whoever waits for a machine whose server ended without a word, and was started anew, is told at once that it waits in vain: long before the machine would be taken for lost,
// and though it never was.
func TestStartedAnew(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	join := func(nc *nats.Conn, name string) *cluster.Node {
		n, err := cluster.Join(nc, cluster.Options{Cluster: "farm", Machine: name, Members: counted(3), Replicas: 3, Agents: agents(0)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		return n
	}
	a := join(farm[0].NATS(), "a")
	before := join(farm[1].NATS(), "b")
	listener, err := before.Listen()
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	var accepting sync.WaitGroup
	defer accepting.Wait()
	defer listener.Close()
	accepting.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	})
	until(t, "b is known", func() bool {
		return slices.ContainsFunc(a.Machines(), func(m cluster.Machine) bool { return m.Name == "b" })
	})
	var c net.Conn
	for began := time.Now(); c == nil; {
		if c, err = a.Dial(t.Context(), "b"); err != nil && time.Since(began) > patience {
			t.Fatal(err)
		}
	}
	defer c.Close()
	defer (<-accepted).Close()
	waits := make(chan error, 1)
	go func() { // which ends with the connection
		_, err := c.Read(make([]byte, 1))
		waits <- err
	}()
	farm[1].NATS().Close() // nothing more is heard of it
	select {
	case err := <-waits:
		t.Fatalf("the connection ended before anybody knew: %v", err)
	case <-time.After(2 * time.Second):
	}
	join(farm[2].NATS(), "b")
	select {
	case err := <-waits:
		if !errors.Is(err, tunnel.ErrAnew) {
			t.Errorf("whoever waits is told %v", err)
		}
	case <-time.After(patience):
		t.Error("whoever waits is told nothing")
	}
}
