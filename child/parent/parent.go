// Package parent is how an agent asks its parent: whether a tool call may run,
// and to do something with other agents.
//
//	client := parent.New(parent.Options{Approvals: parent.Ask, HostCalls: true})
//	answer, err := client.Permission(ctx, request)   // a tool's goroutine
//	result, err := client.Call(ctx, turnID, "send", params)
//	event := <-client.Events()                        // the writer of stdout
//	err := client.Answer(command)                     // the reader of stdin
//
// Each question has one answer, is given up with its context, and leaves nothing
// behind. Its id is of this Client alone, so that an answer to the process before
// can never be taken for one to this. A Client is safe for concurrent use and starts no goroutine. At most
// MaxOpen questions wait; a further one is refused. See SPEC.md §3.11.
package parent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

// Approvals says what becomes of a call that needs to be approved.
type Approvals string

// The modes of --approvals.
const (
	Ask   Approvals = "ask"   // the parent decides
	Deny  Approvals = "deny"  // none is
	Allow Approvals = "allow" // all are
)

const (
	// MaxOpen is how many questions may wait for their answers.
	MaxOpen = 64
	// DefaultDeadline is how long a permission may take.
	DefaultDeadline = 5 * time.Minute
)

var (
	// ErrNoHost says that the parent does not take host calls.
	ErrNoHost = errors.New("this agent's parent takes no host calls")
	// ErrBusy says that MaxOpen questions wait already.
	ErrBusy = fmt.Errorf("%d questions to the parent wait already", MaxOpen)
	// ErrUnknown says that no question with that id waits: it was answered,
	// given up, or never asked.
	ErrUnknown = errors.New("no such question waits for an answer")
)

// HostError is the parent's no to a host call.
type HostError struct{ protocol.HostError }

func (e *HostError) Error() string { return e.Message }

// Options configure a Client.
type Options struct {
	Approvals Approvals // default Deny
	HostCalls bool
	// Deadline bounds the wait for a permission; 0 means DefaultDeadline.
	Deadline time.Duration
}

// Client is the parent as an agent sees it.
type Client struct {
	options  Options
	idPrefix string              // of the ids, random
	events   chan protocol.Event // room for what all open questions can say
	underway atomic.Int64        // events that are put into the channel and not yet Passed

	mu      sync.Mutex // guards all below
	last    uint64     // number of the last question
	pending map[string]pendingRequest
}

// pendingRequest is one that waits.
type pendingRequest struct {
	answer  chan protocol.Command // has room for the one answer
	offered []protocol.Decision   // of a permission; none: each that there is
}

// idPrefixLength is how many of the 32 letters and digits of base32 tell one
// process of an agent from all others: 50 bits.
const idPrefixLength = 10

// New returns a Client whose questions wait in Events.
func New(o Options) *Client {
	if o.Approvals == "" {
		o.Approvals = Deny
	}
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	return &Client{
		options: o, idPrefix: strings.ToLower(rand.Text()[:idPrefixLength]),
		events: make(chan protocol.Event, 2*MaxOpen), pending: map[string]pendingRequest{},
	}
}

// Approvals is the mode.
func (p *Client) Approvals() Approvals { return p.options.Approvals }

// HostCalls reports whether the parent takes host calls.
func (p *Client) HostCalls() bool { return p.options.HostCalls }

// Events are those for the parent, in their order. The channel is never
// closed. Its reader calls Passed for each event.
func (p *Client) Events() <-chan protocol.Event { return p.events }

// Passed says that an event of Events has been passed on.
func (p *Client) Passed() { p.underway.Add(-1) }

// Quiet reports whether each event that was sent has been passed on.
func (p *Client) Quiet() bool { return p.underway.Load() == 0 }

// Permission asks whether a call may run and fills in the request's id and
// deadline. The answer at the deadline is a no; the error is that of ctx, or
// ErrBusy.
func (p *Client) Permission(ctx context.Context, r protocol.PermissionRequest) (protocol.PermissionResponse, error) {
	id, answer, err := p.open("p", r.Decisions)
	if err != nil {
		return protocol.PermissionResponse{}, err
	}
	defer p.close(id)
	r.RequestID = id
	r.Deadline = time.Now().Add(p.options.Deadline).UTC().Format(time.RFC3339Nano)
	timer := time.NewTimer(p.options.Deadline)
	defer timer.Stop()
	p.Send(ctx, r)
	end := protocol.PermissionEnd{RequestID: id}
	select {
	case c := <-answer:
		response := c.(protocol.PermissionResponse)
		end.Outcome = "allowed"
		if response.Decision == protocol.Deny {
			end.Outcome = "denied"
		}
		p.Send(ctx, end)
		return response, nil
	case <-timer.C:
		end.Outcome = "expired"
		p.Send(ctx, end)
		return protocol.PermissionResponse{
			RequestID: id, Decision: protocol.Deny, Reason: fmt.Sprintf("nobody answered within %v", p.options.Deadline),
		}, nil
	case <-ctx.Done():
		end.Outcome = "cancelled"
		p.sendIfRoom(end)
		return protocol.PermissionResponse{}, ctx.Err()
	}
}

// Call asks the parent for the method of the façade. params is an object. The
// error is a *HostError, ErrNoHost, ErrBusy or that of ctx, which tells the
// parent that nobody waits any more.
func (p *Client) Call(ctx context.Context, turnID, method string, params jsontext.Value) (jsontext.Value, error) {
	if !p.options.HostCalls {
		return nil, ErrNoHost
	}
	id, answer, err := p.open("h", nil)
	if err != nil {
		return nil, err
	}
	defer p.close(id)
	p.Send(ctx, protocol.HostCall{CallID: id, TurnID: turnID, Method: method, Params: params})
	select {
	case c := <-answer:
		result := c.(protocol.HostResult)
		if result.Error != nil {
			return nil, &HostError{*result.Error}
		}
		return result.Result, nil
	case <-ctx.Done():
		p.sendIfRoom(protocol.HostCancel{CallID: id})
		return nil, ctx.Err()
	}
}

// Send puts an event of the agent's own, such as subagent_start, among the
// questions. It waits until there is room or ctx ends: the writer of stdout goes on
// until the end of the child and never waits for a tool.
func (p *Client) Send(ctx context.Context, e protocol.Event) {
	p.underway.Add(1)
	select {
	case p.events <- e:
	case <-ctx.Done():
		p.underway.Add(-1)
	}
}

// sendIfRoom says that a question needs no answer any more. An abort does not
// wait: where there is no room, the parent has long stopped reading, and its
// answer would find that nobody waits for it.
func (p *Client) sendIfRoom(e protocol.Event) {
	p.underway.Add(1)
	select {
	case p.events <- e:
	default:
		p.underway.Add(-1)
	}
}

// open opens a question.
func (p *Client) open(kind string, offered []protocol.Decision) (id string, answer <-chan protocol.Command, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) >= MaxOpen {
		return "", nil, ErrBusy
	}
	p.last++
	id = kind + p.idPrefix + "-" + strconv.FormatUint(p.last, 10)
	q := pendingRequest{answer: make(chan protocol.Command, 1), offered: offered}
	p.pending[id] = q
	return id, q.answer, nil
}

func (p *Client) close(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, id)
}

// Answer takes a PermissionResponse or a HostResult. The error says what is
// wrong with it; ErrUnknown that nobody waits for it.
func (p *Client) Answer(c protocol.Command) error {
	var id string
	switch c := c.(type) {
	case protocol.PermissionResponse:
		switch id = c.RequestID; c.Decision {
		case protocol.AllowOnce, protocol.AllowSession, protocol.Deny:
		default:
			return fmt.Errorf("decision %q is not known, want allow_once, allow_session or deny", c.Decision)
		}
		if id == "" || id[0] != 'p' {
			return fmt.Errorf("permission_response to %q: %w", id, ErrUnknown)
		}
	case protocol.HostResult:
		if id = c.CallID; (c.Result == nil) == (c.Error == nil) {
			return errors.New("a host_result has either a result or an error")
		}
		if id == "" || id[0] != 'h' {
			return fmt.Errorf("host_result to %q: %w", id, ErrUnknown)
		}
	default:
		panic("parent: no answer: " + c.Name())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	q, ok := p.pending[id]
	if !ok {
		return fmt.Errorf("%s to %q: %w", c.Name(), id, ErrUnknown)
	}
	if r, ok := c.(protocol.PermissionResponse); ok && q.offered != nil && !slices.Contains(q.offered, r.Decision) {
		return fmt.Errorf("decision %q was not offered, want one of %v", r.Decision, q.offered)
	}
	delete(p.pending, id)
	q.answer <- c // it has room
	return nil
}
