package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
)

// Agents is what a stream of one agent needs of the registry. It is safe for concurrent
// use.
type Agents interface {
	// Resolve returns the agent of that id. One that is saved and does not run is started.
	Resolve(ctx context.Context, id string) (*supervisor.Agent, error)
	// CheckStart reports why a principal must not start the agent's process, nil if it may
	// or if nothing is started; ask says that a stopped agent would be asked something.
	CheckStart(p rpc.Principal, id string, ask bool) error
	// Enter waits until the agents are not being handed over to another machine; they are not until leave is called. The error is that of ctx.
	Enter(ctx context.Context, ids []string, queues bool) (leave func(), err error)
	// Leaves reports whether an agent is being handed over to another machine, or was lately.
	Leaves(id string) bool
	// Certain reports why another machine may have the agent by now, nil if none has.
	Certain(id string) error
}

// History is what is kept of agents' events, whether they run or not. It is safe for
// concurrent use.
type History interface {
	// Events yields the events of an agent above a number, in order. A number that is left
	// out is not kept.
	Events(agent string, after uint64) iter.Seq2[supervisor.Event, error]
}

// Options are what Streams need.
type Options struct {
	// Supervisor runs the agents. Required.
	Supervisor *supervisor.Supervisor
	// Agents finds them. Required.
	Agents Agents
	// History is read for agents that do not run. Required.
	History History
	// Heartbeat is how long a stream may be quiet. Required.
	Heartbeat time.Duration
	// Elsewhere follows the events of agents that other machines have. Nil if there are none.
	Elsewhere Elsewhere
	// Log gets a line where History cannot be read. Required.
	Log *zap.Logger
}

// Streams serves the streams of events of one server.
type Streams struct {
	o     Options
	code  registrationCode
	limit streamLimit
}

// New returns Streams without any stream.
func New(o Options) *Streams {
	return &Streams{o: o, code: newRegistrationCode()}
}

// Request is what a client asks for.
type Request struct {
	By rpc.Principal
	// Agent is whose events are wanted; "" for those of all agents.
	Agent     string
	RequestID string // of HTTP
	// Forwarded says that another machine has passed the request on: it goes nowhere else.
	Forwarded bool
	// LastEventID is the header of that name, which wins over the parameter after: a
	// browser's EventSource repeats the URL and says in the header how far it got.
	LastEventID string
	// Query has Parameters alone, each of them once.
	Query url.Values
}

// Parameters are those that the query of a Request for that agent may have.
func Parameters(agent string) []string {
	if agent == "" {
		return []string{"after", "types", "agents", "tool_output"}
	}
	return []string{"after", "types", "tool_output"}
}

// Serve writes the events that r asks for to a stream, until that ends,
// and returns why it did; "" if nothing could be written. If refused is not nil, nothing was written.
func (s *Streams) Serve(ctx context.Context, r Request, to rpc.Writer) (refused *rpc.Error, ended string) {
	q, refused := readQuery(r)
	if refused != nil {
		return refused, ""
	}
	ctx, release := bindToKey(ctx, r.By)
	defer release()
	if r.Agent == "" {
		return s.serveAll(ctx, r, q, to)
	}
	return s.serveAgent(ctx, r, q, to)
}

// errKeyEnded is why a stream ends with the key that opened it.
var errKeyEnded = errors.New("the key is not good any more")

// bindToKey returns a context that ends with the principal's key too. release must be
// called.
func bindToKey(ctx context.Context, p rpc.Principal) (bound context.Context, release func()) {
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.Valid, func() {
		if errors.Is(context.Cause(p.Valid), auth.ErrClosed) { // with the server, whose clients come again
			cancel(supervisor.ErrDraining)
		} else {
			cancel(errKeyEnded)
		}
	})
	return bound, func() { stop(); cancel(nil) }
}

// enter counts a stream of the principal; leave must follow unless it is refused.
func (s *Streams) enter(p rpc.Principal) (leave func(), refused *rpc.Error) {
	if full := s.limit.take(p.Grant); full != "" {
		return nil, new(tooManyStreams(full))
	}
	return func() { s.limit.leave(p.Grant) }, nil
}

func tooManyStreams(full string) rpc.Error {
	return rpc.Refuse(http.StatusServiceUnavailable, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindTooManyStreams, full,
		"Follow all agents in one stream, GET /events, or close one.")
}

// Bounds of the streams of events that are open (SPEC §7). The last ones are kept back
// for full keys.
const (
	maxStreams       = 256
	maxScopedStreams = 192 // of all scoped keys
	maxKeyStreams    = 64  // of one scoped key
)

// streamLimit counts the streams of events that are open. The zero value is ready; it is
// safe for concurrent use.
type streamLimit struct {
	mu     sync.Mutex // guards what follows
	all    int
	scoped int
	of     map[string]int // by the id of a scoped key
}

// take counts one more stream for a key. full says which bound forbids it; if it is "",
// leave must follow.
func (l *streamLimit) take(g auth.Grant) (full string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.all >= maxStreams:
		return fmt.Sprintf("%d streams of events are open", maxStreams)
	case g.Scope == auth.ScopeFull:
	case l.scoped >= maxScopedStreams:
		return fmt.Sprintf("%d streams of events of keys that are not full are open", maxScopedStreams)
	case l.of[g.ID] >= maxKeyStreams:
		return fmt.Sprintf("%d streams of events of this key are open", maxKeyStreams)
	default:
		if l.of == nil {
			l.of = map[string]int{}
		}
		l.scoped++
		l.of[g.ID]++
	}
	l.all++
	return ""
}

func (l *streamLimit) leave(g auth.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if g.Scope == auth.ScopeFull {
		return
	}
	l.scoped--
	if l.of[g.ID]--; l.of[g.ID] == 0 {
		delete(l.of, g.ID)
	}
}
