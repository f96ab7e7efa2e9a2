package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// defaultWait is how long a turn waits for servers that it starts.
const defaultWait = 2 * time.Second

// ErrUnknown says that there is no server of a name.
var ErrUnknown = errors.New("there is no such MCP server")

// Environment is where the servers of an agent run. It is called from any goroutine, and
// must not wait for the Manager, nor for a lock that is held while a method but Tools
// and Status is called.
type Environment interface {
	// Permit says why a server may not be started. It is not asked about one that
	// runs: see [Manager.Restart].
	Permit(s Server) error
	// Cwd is the working directory, absolute: where programs start, and what servers
	// are told of.
	Cwd() string
}

// anywhere is the Environment of a Manager that was given none.
type anywhere struct{}

func (anywhere) Permit(Server) error { return nil }
func (anywhere) Cwd() string         { return "/" }

// Options says what a [Manager] is made of.
type Options struct {
	Servers []Server
	// Start starts programs; nil starts none.
	Start Start
	// Environment is the agent's; nil permits all servers, in "/".
	Environment Environment
	// Images keeps pictures of results; nil leaves pictures out.
	Images tool.Images
	// Wait is how long Prepare waits at most; default 2 s.
	Wait time.Duration
	// HTTP reaches servers with a URL; default one of the Manager's own.
	HTTP http.RoundTripper
	// Log may be nil.
	Log *zap.Logger
}

// Manager holds the servers of one agent. It is safe for concurrent use.
type Manager struct {
	options      Options
	servers      []*managedServer
	ownTransport *http.Transport // nil unless we made it

	ctx    context.Context //nolint:containedctx // of all sessions; ends with Close
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // one for each server that is connected or being so

	mu     sync.Mutex // guards all below
	closed bool
}

// New makes a manager. It starts nothing.
func New(o Options) *Manager {
	if o.Environment == nil {
		o.Environment = anywhere{}
	}
	if o.Wait <= 0 {
		o.Wait = defaultWait
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	m := &Manager{options: o}
	if o.HTTP == nil && slices.ContainsFunc(o.Servers, func(s Server) bool { return s.URL != "" }) {
		m.ownTransport = newBaseTransport()
		m.options.HTTP = m.ownTransport
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	for _, s := range o.Servers {
		if s.Timeout <= 0 {
			s.Timeout = DefaultTimeout
		}
		ms := &managedServer{manager: m, server: s, log: o.Log.With(zap.String("server", s.Name))}
		if s.Disabled {
			ms.disabled = "it is disabled in mcp.json"
		}
		m.servers = append(m.servers, ms)
	}
	return m
}

// startGoroutine runs f in a goroutine that Close joins. It refuses once that was called.
func (m *Manager) startGoroutine(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.tasks.Go(f)
	return true
}

// Tools are those of all servers as far as they are known: it starts nothing and
// does not wait. It implements toolenv.Source.
func (m *Manager) Tools() []tool.Tool {
	var all []tool.Tool
	for _, ms := range m.servers {
		all = append(all, ms.offeredTools()...)
	}
	return all
}

// Prepare starts the servers that were not started yet or have failed, and waits
// until they are ready, for 2 s or until ctx ends; once for each start. It is
// called at the beginning of a turn. Servers that a project names are left out,
// and those that were lost are left to the next call.
func (m *Manager) Prepare(ctx context.Context) {
	var attempts []*attempt
	for _, ms := range m.servers {
		if a := ms.prepare(); a != nil {
			attempts = append(attempts, a)
		}
	}
	for _, a := range attempts {
		timer := time.NewTimer(time.Until(a.waitFor))
		select {
		case <-a.done:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Connect starts a server, also one that is disabled, was disconnected, or that
// a project names: its caller has decided that. Of the latter, target has to
// be what Status says. It returns when the server is ready, or why it is not. The
// error may wrap [ErrUnknown].
func (m *Manager) Connect(ctx context.Context, name, target string) error {
	ms, err := m.server(name)
	if err != nil {
		return err
	}
	if ms.server.Project && ms.server.Problem == "" && (target == "" || target != ms.server.target()) {
		return fmt.Errorf("connect the MCP server %s: the project names it: allow it by its target, %.*q", name, maxTarget, ms.server.target())
	}
	if err := ms.connect(ctx); err != nil {
		return fmt.Errorf("connect the MCP server %s: %w", name, err)
	}
	return nil
}

// Disconnect ends a server, and its tools are gone until Connect. It returns
// when nothing of it is left, or with the error of ctx. The error may wrap
// [ErrUnknown].
func (m *Manager) Disconnect(ctx context.Context, name string) error {
	ms, err := m.server(name)
	if err != nil {
		return err
	}
	ms.mu.Lock()
	ms.disabled = errDisconnected.Error()
	ms.mu.Unlock()
	if err := ms.release(ctx, errDisconnected); err != nil {
		return fmt.Errorf("disconnect the MCP server %s: %w", name, err)
	}
	return nil
}

// Restart ends all servers, for the working directory or the permissions have
// changed. They are started again as they are needed; what a project names has
// to be allowed anew. It returns when nothing of them is left, or with the error
// of ctx.
func (m *Manager) Restart(ctx context.Context) error {
	errs := make([]error, len(m.servers))
	var ends sync.WaitGroup
	for i, ms := range m.servers {
		ends.Go(func() {
			ms.mu.Lock()
			ms.allowed, ms.failures, ms.retryAt = false, 0, time.Time{}
			ms.restarts++ // a start that was permitted before is to ask again
			ms.mu.Unlock()
			errs[i] = ms.release(ctx, errRestarting)
		})
	}
	ends.Wait()
	return errors.Join(errs...)
}

// Status tells of all servers, in the order of Options.
func (m *Manager) Status() []protocol.MCPServer {
	all := make([]protocol.MCPServer, 0, len(m.servers))
	for _, ms := range m.servers {
		all = append(all, ms.status())
	}
	return all
}

func (m *Manager) server(name string) (*managedServer, error) {
	for _, ms := range m.servers {
		if ms.server.Name == name {
			return ms, nil
		}
	}
	return nil, fmt.Errorf("%w: %.64q", ErrUnknown, name)
}

// Close ends all servers. It returns when nothing of them is left, in less than
// a second unless a program cannot be killed, or with the error of ctx.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel(errClosing)
	gone := make(chan struct{})
	go func() { // ends with the last server, which is what the caller asks about
		m.tasks.Wait()
		if m.ownTransport != nil {
			m.ownTransport.CloseIdleConnections()
		}
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the MCP servers: %w", ctx.Err())
	}
}
