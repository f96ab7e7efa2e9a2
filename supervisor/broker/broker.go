package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/tracing"
	"nexus.internal/supervisor/store"
)

// Options are what a Broker is made of.
type Options struct {
	// Providers are the services, by their names in config.json. Reload replaces them.
	Providers map[string]Provider
	// Limits hold for agents that have none of their own.
	Limits Limits
	// Accounts keeps what agents used and their limits. Nil: they are in memory alone.
	Accounts Accounts
	// Dirs are where the directory of the sockets is made: in the first that
	// takes sockets. No agent may reach them, and they hold nothing else.
	Dirs []string
	// Trace begins a span for each request to a service. Nil begins none.
	Trace tracing.Start
	// Log may be nil: nothing is logged then.
	Log *zap.Logger
}

// Accounts is the part of a [store.Store] that the broker needs.
type Accounts interface {
	Account(agent string) (*store.Account, error)
	SetAccount(agent string, a *store.Account) error
}

// Broker forwards the requests of agents to their models.
type Broker struct {
	options   Options
	log       *zap.Logger
	transport *http.Transport
	listen    func(path string) (net.Listener, error) // safefile.ListenSocket, but in tests
	uid       int
	dir       *safefile.Dir // of the sockets
	closeOnce sync.Once
	closeErr  error

	mu       sync.Mutex          // guards all below and what accounts hold
	services map[string]*service // by name
	limits   Limits              // of accounts that have none of their own
	accounts map[string]*account // by agent
	// evicted counts those that left accounts.
	evicted uint64
	sockets map[*agentSocket]struct{} // open ones
	closed  bool
	traffic map[string]*Traffic // by provider; all there are
}

// New makes a broker and the directory of its sockets, and removes those of
// servers that are dead. Call Run, or Close, when it is not needed any more.
func New(o Options) (*Broker, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	b := &Broker{
		options: o, log: o.Log.Named("broker"), transport: newTransport(), listen: safefile.ListenSocket, uid: os.Getuid(),
		accounts: map[string]*account{}, sockets: map[*agentSocket]struct{}{}, traffic: map[string]*Traffic{},
	}
	if err := b.Reload(o.Providers, o.Limits, func() error { return nil }); err != nil {
		return nil, fmt.Errorf("new broker: %w", err)
	}
	dir, err := makeSocketDir(o.Dirs)
	if err != nil {
		return nil, fmt.Errorf("new broker: %w", err)
	}
	b.dir = dir
	return b, nil
}

// Reload puts other providers, and other limits of agents that have none of their own,
// in the place of those that are. It calls commit when it is sure that nothing else
// can go wrong, and while no request can begin. If there is an error, that of commit
// included, everything stays as it was. Requests that are under way go on as they
// began; the limits of processes hold for those that start later.
func (b *Broker) Reload(providers map[string]Provider, limits Limits, commit func() error) error {
	services, err := newServices(providers)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := commit(); err != nil {
		return err
	}
	b.services, b.limits = services, limits
	for name := range services {
		if b.traffic[name] == nil {
			b.traffic[name] = &Traffic{}
		}
	}
	for _, acc := range b.accounts {
		if !acc.hasOwnLimits {
			acc.limits = limits
		}
	}
	return nil
}

// newTransport is the one pool of connections. Proxies are those of the
// server's environment.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		DisableCompression:     true, // what is read here must be what was said
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    64,
		MaxConnsPerHost:        1024,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeader,
		DialContext:            dialer.DialContext,
	}
}

// Run waits until ctx ends and closes the broker. It is an actor that ends
// after the supervisor, whose children still ask.
func (b *Broker) Run(ctx context.Context) error {
	<-ctx.Done()
	return b.Close()
}

// Close ends all requests, removes the sockets and returns when nothing runs
// any more. It may be called again.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() {
		b.mu.Lock()
		b.closed = true
		open := make([]*agentSocket, 0, len(b.sockets))
		for d := range b.sockets {
			open = append(open, d)
		}
		b.mu.Unlock()
		for _, d := range open {
			d.close()
		}
		b.transport.CloseIdleConnections()
		b.closeErr = b.dir.Remove()
	})
	return b.closeErr
}

// Check says why no agent could reach the broker; nil if they can.
func (b *Broker) Check() error {
	if _, err := os.Stat(b.dir.Path()); err != nil {
		return fmt.Errorf("the directory of the sockets: %w", err)
	}
	return nil
}

// Agent is what the broker must know of an agent.
type Agent struct {
	ID string
	// Parent is the agent that made it, "" if none did. What an agent uses
	// counts against the limits of all that it comes from, too.
	Parent string
	// Ancestors are those above Parent, the nearest first, where that is to be put right:
	// one of them may have another name by now.
	Ancestors []string
	// Limits are its own; nil means those that are saved with it, or else
	// Options.Limits. Unless it is New, they only tighten those. Of processes and
	// agents, the tighter of its own and Parent's hold.
	Limits *Limits
	// New says that an earlier agent of that name was another one: what it
	// used and its limits are forgotten, in the file as well.
	New bool
}

// Register makes an agent known and returns the limits that hold for it. It is called again when
// an agent is made again; an agent that nobody registered has Options.Limits and
// no parent. Where its limits, or those of an agent above it, cannot be read, the error is
// a *store.DamagedError, or a *supervisor.StartError if that may pass.
func (b *Broker) Register(a Agent) (l Limits, err error) {
	if err := b.prepare(a); err != nil {
		return Limits{}, err
	}
	line := []string{a.ID}
	if a.Parent != a.ID {
		line = append(append(line, a.Parent), a.Ancestors...)
	}
	var acc *account
	if err := b.withAccounts(func() error {
		acc = b.enter(a)
		l = acc.limits
		return nil
	}, line...); err != nil {
		return Limits{}, err
	}
	if a.Limits != nil || a.Parent != "" {
		if err := b.saveAccount(acc); err != nil {
			return Limits{}, err
		}
	}
	return l, nil
}

// enter is the account of an agent, with what is known of it. b.mu is held.
func (b *Broker) enter(a Agent) *account {
	acc := b.accounts[a.ID]
	switch {
	case a.Limits == nil:
	case a.New:
		acc.limits, acc.hasOwnLimits = *a.Limits, true
	default:
		acc.limits, acc.hasOwnLimits = a.Limits.tighten(acc.limits), true
	}
	if a.Parent == "" || a.Parent == a.ID {
		return acc
	}
	acc.parent = b.accounts[a.Parent]
	below := acc.parent
	for _, id := range a.Ancestors {
		below.parent = b.accounts[id]
		below = below.parent
	}
	if within := protocol.Tighter(acc.limits.Agents, acc.parent.limits.Agents); within != acc.limits.Agents {
		acc.limits.Agents, acc.hasOwnLimits = within, true
	}
	if within := acc.limits.Within(acc.parent.limits.ProcessLimits); within != acc.limits.ProcessLimits {
		acc.limits.ProcessLimits, acc.hasOwnLimits = within, true
	}
	return acc
}

// prepare makes room in memory, and forgets an earlier agent of the name of a new one.
func (b *Broker) prepare(a Agent) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.evict()
	if !a.New {
		return nil
	}
	acc := &account{id: a.ID, limits: b.limits}
	if b.options.Accounts != nil {
		if err := b.options.Accounts.SetAccount(a.ID, nil); err != nil {
			return err
		}
	}
	b.accounts[a.ID] = acc
	b.evicted++ // the one before
	return nil
}

// socketPath is the path of an agent's socket, the same as long as the broker
// lives. Ids are longer than a path may be.
func (b *Broker) socketPath(agent string) string {
	sum := sha256.Sum256([]byte(agent))
	return filepath.Join(b.dir.Path(), hex.EncodeToString(sum[:6]))
}

// Forget drops what the broker keeps of an agent that does not run, so that its
// account is read again when an agent of that name is made: what is saved has become
// another's. What it holds stays as it is.
func (b *Broker) Forget(agent string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if acc := b.accounts[agent]; acc != nil && acc.sockets == 0 && acc.running == 0 {
		delete(b.accounts, agent)
		b.evicted++
	}
}

// Usage is what an agent used in its life, in this server's and in earlier
// ones. ok is false if nothing is known of it.
func (b *Broker) Usage(agent string) (u Usage, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	acc, ok := b.accounts[agent]
	if !ok {
		return Usage{}, false
	}
	return acc.usage, true
}

// Stats is a snapshot of a Broker.
type Stats struct {
	// Agents are those that run, or ran not long ago.
	Agents map[string]Usage
	// Running is how many requests are under way.
	Running int
	// Providers are all services, by name.
	Providers map[string]Traffic
}

// Stats returns the counts.
func (b *Broker) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Stats{Agents: make(map[string]Usage, len(b.accounts)), Providers: make(map[string]Traffic, len(b.traffic))}
	for id, acc := range b.accounts {
		s.Agents[id] = acc.usage
		s.Running += acc.ownRequests
	}
	for name, t := range b.traffic {
		s.Providers[name] = *t
	}
	return s
}
