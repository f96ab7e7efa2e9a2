package cluster_test

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/tunnel"
)

// joined is a machine by a NATS that is there already.
func joined(t *testing.T, url, name, machine string) (*cluster.Node, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	link, err := cluster.ConnectTo(url, "", zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	n, err := cluster.Join(link.NATS(), cluster.Options{Cluster: name, Machine: machine, Replicas: 3, Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Close()
		link.Close()
	})
	return n, logs
}

// A NATS that is there already, of one server, serves two clusters, which know nothing of each other. A machine may be there before it.
// Of two servers of one name, each says so.
func TestNATSThatIsThere(t *testing.T) {
	t.Parallel()
	at := clustertest.Addresses(t, 1)[0]
	host, port, err := cluster.SplitAddress(at)
	if err != nil {
		t.Fatal(err)
	}
	early, _ := joined(t, "nats://"+at, "farm", "a")
	if err := early.Check(); err == nil || !strings.Contains(err.Error(), "NATS is not reached") {
		t.Errorf("before there is a server: %v", err)
	}
	s, err := server.NewServer(&server.Options{Host: host, Port: port, NoSigs: true, JetStream: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	end := sync.OnceFunc(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	t.Cleanup(end)
	second, _ := joined(t, "nats://"+at, "farm", "b")
	other, _ := joined(t, "nats://"+at, "ranch", "a")
	agree(t, &machine{Node: early}, &machine{Node: second}, &machine{Node: other})
	until(t, "nothing is wrong with the first", func() bool { return early.Check() == nil })
	until(t, "the machines of a cluster know each other", func() bool {
		return states(&machine{Node: early}) == "a up, b up" && states(&machine{Node: second}) == "a up, b up"
	})
	if got := states(&machine{Node: other}); got != "a up" {
		t.Errorf("another cluster's machine knows %s", got)
	}

	var all sync.WaitGroup
	owners := make([]string, 2)
	for i, n := range []*cluster.Node{early, second} {
		all.Go(func() {
			c, err := n.Take(t.Context(), "worker")
			if err != nil {
				t.Error(err)
			}
			owners[i] = c.Machine
			if known, ok := n.Owner("worker"); !ok || known.Machine != c.Machine {
				t.Errorf("after it was told of %+v, a machine knows %+v", c, known)
			}
		})
	}
	all.Wait()
	if owners[0] != owners[1] || owners[0] == "" {
		t.Errorf("two that take an agent say that it is of %q", owners)
	}
	if c, err := other.Take(t.Context(), "worker"); err != nil || c.Machine != "a" || len(other.Owned()) != 1 {
		t.Errorf("another cluster's agent of that name: %+v, %v", c, err)
	}
	if n := len(early.Owned()) + len(second.Owned()); n != 1 {
		t.Errorf("two machines have %d agents", n)
	}

	_, logs := joined(t, "nats://"+at, "farm", "b")
	until(t, "two of one name are told of", func() bool { return logs.FilterMessageSnippet("another server is this machine").Len() > 0 })
	if n := logs.FilterMessageSnippet("another server is this machine").Len(); n > 1 {
		t.Errorf("it was said %d times in %s", n, time.Minute)
	}

	end()
	until(t, "its end is known", func() bool { return early.Check() != nil })
	if _, err := early.Claim(t.Context(), "late", 0); !errors.Is(err, cluster.ErrNoQuorum) || !strings.Contains(err.Error(), "NATS is not reached") {
		t.Errorf("a claim without a server: %v", err)
	}
	if c, err := early.Dial(t.Context(), "b"); !errors.Is(err, tunnel.ErrNoServer) || err.Error() != "NATS is not reached" {
		t.Errorf("a connection without a server: %v, %v", c, err)
	}
}

// What is wrong with the credentials is said at once.
func TestRefusedLink(t *testing.T) {
	if _, err := cluster.ConnectTo("nats://127.0.0.1:1", filepath.Join(t.TempDir(), "nowhere"), zap.NewNop()); err == nil || !strings.Contains(err.Error(), "the credentials for NATS: ") {
		t.Errorf("no file: %v", err)
	}
	if _, err := cluster.ConnectTo("http://127.0.0.1:1:2", "", zap.NewNop()); err == nil || !strings.Contains(err.Error(), "connect to NATS") {
		t.Errorf("no URL: %v", err)
	}
}
