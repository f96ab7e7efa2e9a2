package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster/tunnel"
)

// ErrNoQuorum says that a majority of the machines is not to be reached, so that nothing can be agreed on.
var ErrNoQuorum = errors.New("a majority of the machines is not reached")

const (
	// agreePatience bounds one question to all machines.
	agreePatience = 5 * time.Second
	// leaderPatience bounds the question for what there is to agree on, which nobody answers while the machines elect who leads.
	leaderPatience = 2 * time.Second
	retryEvery     = 200 * time.Millisecond
	reachPatience  = 2 * time.Second // for a machine that is known, until it takes connections
)

// Node is this machine of a cluster. Its methods may be called from any goroutine.
type Node struct {
	o       Options
	log     *zap.Logger
	nc      *nats.Conn
	js      jetstream.JetStream
	tunnel  *tunnel.Tunnel
	process string             // chance
	others  *nats.Subscription // to what the other machines say
	claimer *nats.Subscription // to the claims of which they tell

	once    sync.Once // over Close
	stop    context.CancelFunc
	running sync.WaitGroup
	agreed  chan struct{} // closed once claims are known
	reheard chan struct{} // gets a value when a majority is heard again

	changing sync.Mutex // held while what is kept is changed

	mu        sync.Mutex
	kept      settings
	machines  map[string]Machine
	twins     map[string]*twin   // by machine
	bucket    jetstream.KeyValue // nil until agreed
	claims    map[string]Claim   // as far as they are known here
	claimants map[string]int     // how many of them each machine has, if it has any
	revision  uint64             // the last one that is known
	needed    uint64             // the last one that there was when a majority was there again; until it is known, others are not
	behind    bool               // needed is not known yet
	since     time.Time          // from when on this machine has heard all that the others said; zero before claims are known
	echo      time.Time          // when it heard last what it said itself
	listens   time.Time          // since when it has heard itself, without a pause of more than deafAfter
	// whole is when Check had nothing to say last, and first when claims were known first; zero before.
	whole, first time.Time
}

// Join makes this process a machine of the cluster that nc reaches, which stays its caller's. Whether a majority of the
// machines is there says Agreed.
func Join(nc *nats.Conn, o Options) (*Node, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Members == nil {
		o.Members = anyMembers{}
	}
	n := &Node{o: o, log: o.Log, nc: nc, tunnel: tunnel.New(nc, o.Later), process: rand.Text(), machines: map[string]Machine{}, twins: map[string]*twin{}, claims: map[string]Claim{}, claimants: map[string]int{}, agreed: make(chan struct{}), reheard: make(chan struct{}, 1)}
	var err error
	if n.kept, err = readSettings(o.File); err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	if n.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(agreePatience)); err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	if n.others, err = nc.Subscribe(n.o.beats(), n.heard); err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	if n.claimer, err = nc.Subscribe(n.o.claims(), n.heardClaim); err != nil {
		return nil, fmt.Errorf("join the cluster: %w", errors.Join(err, n.others.Unsubscribe()))
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.running.Go(func() { n.beat(ctx) })
	n.running.Go(func() { n.follow(ctx) })
	return n, nil
}

// JetStream is that of the cluster.
func (n *Node) JetStream() jetstream.JetStream { return n.js }

// Cluster is the name of the cluster.
func (n *Node) Cluster() string { return n.o.Cluster }

// Replicas is on how many machines something is to be kept.
func (n *Node) Replicas() int { return n.o.Replicas }

// Self is the name of this machine.
func (n *Node) Self() string { return n.o.Machine }

// Close leaves the cluster. All that the node has started has ended when it returns, and its connections are closed.
// Further calls do nothing.
func (n *Node) Close() {
	n.once.Do(func() {
		n.stop()
		n.running.Wait()
		_, _ = n.others.Unsubscribe(), n.claimer.Unsubscribe()
		n.tunnel.Close()
		_ = n.nc.FlushTimeout(time.Second) // that this machine leaves
	})
}

// Listen takes the connections that other machines, or this one, make to this one.
func (n *Node) Listen() (net.Listener, error) { return n.tunnel.Listen(n.o.at(n.o.Machine)) }

// Dial connects to a machine. One that has joined may be known a moment before it is reached. The connection ends
// when the machine is not heard of any more.
func (n *Node) Dial(ctx context.Context, machine string) (net.Conn, error) {
	if machine == Unreadable {
		return nil, errUnreadable
	}
	for patience := reachPatience; ; patience -= retryEvery {
		c, err := n.tunnel.Dial(ctx, n.o.at(machine))
		if err == nil {
			return c, nil
		}
		if errors.Is(err, nats.ErrNoResponders) && patience > 0 && n.isUp(machine) && ratelimit.Sleep(ctx, retryEvery) == nil {
			continue
		}
		switch {
		case n.o.Members.Removed(machine):
			err = errRemoved
		case errors.Is(err, nats.ErrNoResponders):
			err = errNobody
		case errors.Is(err, tunnel.ErrNoServer):
			err = tunnel.ErrNoServer
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			err = errSilent
		}
		return nil, err
	}
}

// Why a machine is not dialled.
var (
	errNobody  = errors.New("no server of that name is there")
	errSilent  = errors.New("its server does not answer")
	errRemoved = errors.New("it was removed from the cluster, and has not joined anew")
)

// errUnreadable is why a machine is not dialled.
var errUnreadable = errors.New("what says which machine that is has a later format than this program reads, or is damaged: upgrade it")

// Check says why the machines do not agree on anything, as far as that is known; nil if they do.
func (n *Node) Check() error {
	if !n.nc.IsConnected() {
		return tunnel.ErrNoServer
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.since.IsZero() || !n.majority() || n.behind || n.revision < n.needed {
		return ErrNoQuorum
	}
	return nil
}

// Cut says why a majority of the machines is not reached, as Check does, and since when what this one has may be old: from the last moment
// in which a majority was certainly heard. It is zero if none was, since the node began.
func (n *Node) Cut() (since time.Time, err error) {
	if err := n.Check(); err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		if since = n.whole.Add(-lostAfter); since.Before(n.first) {
			since = n.first
		}
		return since, err
	}
	return time.Time{}, nil
}

// Agreed waits until a majority of the machines is there, and what they agree on is known here.
func (n *Node) Agreed(ctx context.Context) error {
	select {
	case <-n.agreed:
		return nil
	case <-ctx.Done():
		return ErrNoQuorum
	}
}
