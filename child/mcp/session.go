package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"nexus.internal/protocol/textcut"
)

const (
	// protocolVersion is what we ask for. Servers that are asked for a newer one,
	// which begins in another way, may fall over.
	protocolVersion = "2025-11-25"
	// connectTimeout is how long a server may take to start and to say what it
	// has.
	connectTimeout = 30 * time.Second
	// pingTimeout is how long a server may take to answer a ping, once it has
	// left a call without an answer.
	pingTimeout = 5 * time.Second
	// refreshPause lies between two looks at a server's lists, at least.
	refreshPause = time.Second
	// codeUnsent is what the SDK gives to errors of HTTP that leave the session.
	codeUnsent = -32005
	// maxError is the longest text of an error, in bytes.
	maxError = 2 << 10
)

var errHung = errors.New("it does not answer any more")

// session is one connection to a server.
type session struct {
	server       Server
	link         link
	client       *sdk.ClientSession
	ctx          context.Context         //nolint:containedctx // ends with the session, and its calls with it
	end          context.CancelCauseFunc // asks for the end, and says why
	listsChanged chan struct{}           // has room for one: the lists have changed
	suspect      atomic.Bool             // a call got no answer
	reason       string                  // of its end, once close has returned
	ended        chan struct{}           // closed by its managedServer when all that is known
}

// link is what lies below a session.
type link interface {
	// open gives the SDK its transport. The link ends with the session.
	open(s *session) (sdk.Transport, error)
	// release waits until nothing is left. It says how the server's program
	// ended, "" if there is none or nothing to say.
	release() string
}

// dial connects to a server and learns what it has. The session ends with ctx;
// dial is bounded by connectPatience. On an error nothing of it is left.
func dial(ctx context.Context, server Server, l link, cwd string) (*session, catalog, error) {
	s := &session{server: server, link: l, listsChanged: make(chan struct{}, 1), ended: make(chan struct{})}
	s.ctx, s.end = context.WithCancelCause(ctx)
	timer := time.AfterFunc(connectTimeout, func() { s.end(fmt.Errorf("it was not ready after %v", connectTimeout)) })
	defer timer.Stop()
	list, err := s.connect(cwd)
	if err != nil {
		s.close(err)
		return nil, catalog{}, errors.New(s.reason)
	}
	return s, list, nil
}

func (s *session) connect(cwd string) (catalog, error) {
	transport, err := s.link.open(s)
	if err != nil {
		return catalog{}, err
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "nexus-child", Version: "1"}, &sdk.ClientOptions{
		Capabilities:             &sdk.ClientCapabilities{RootsV2: &sdk.RootCapabilities{}}, //nolint:staticcheck // deprecated in a later version than ours
		MultiRoundTrip:           &sdk.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:   func(context.Context, *sdk.ToolListChangedRequest) { s.noteListsChanged() },
		PromptListChangedHandler: func(context.Context, *sdk.PromptListChangedRequest) { s.noteListsChanged() },
	})
	root := url.URL{Scheme: "file", Path: filepath.ToSlash(cwd)}
	client.AddRoots(&sdk.Root{URI: root.String(), Name: filepath.Base(cwd)}) //nolint:staticcheck // as above
	s.client, err = client.Connect(s.ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: protocolVersion})
	if err != nil {
		return catalog{}, err
	}
	return s.list(s.ctx)
}

// noteListsChanged notes that the lists are no longer as they were.
func (s *session) noteListsChanged() {
	select {
	case s.listsChanged <- struct{}{}:
	default: // it waits already
	}
}

// serve looks after the session until it has ended: refresh is called when its
// lists have changed.
func (s *session) serve(refresh func()) {
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		s.end(cmp.Or(s.client.Wait(), io.EOF))
	}()
	for s.ctx.Err() == nil {
		select {
		case <-s.listsChanged:
			refresh()
		case <-s.ctx.Done():
			continue
		}
		pause := time.NewTimer(refreshPause)
		select {
		case <-pause.C:
		case <-s.ctx.Done():
		}
		pause.Stop()
	}
	s.close(nil)
	<-lost
}

// close ends the session, and returns when nothing of it is left. err is why,
// unless something has ended it already. The managedServer closes ended.
func (s *session) close(err error) {
	s.end(err)
	if s.client != nil {
		s.client.Close() //nolint:errcheck // what matters is that it is closed
	}
	ended := s.link.release()
	cause := context.Cause(s.ctx)
	// The SDK ends a program whose first answer it does not take before it says why.
	if errors.Is(cause, io.EOF) && err != nil && !errors.Is(err, sdk.ErrConnectionClosed) && !errors.Is(err, context.Canceled) {
		cause = err
	}
	s.reason = s.explain(cause)
	if ended != "" {
		s.reason += ": " + ended
	}
}

// callTrace tells what became of the request of a call. The SDK's errors do not.
type callTrace struct {
	sent   atomic.Bool // it has left us
	absent atomic.Bool // the server said that it knows of no such session
}

// callTraceKey finds the trace of a call in its context.
type callTraceKey struct{}

// traceOf is the trace of the call that a context belongs to, or of none.
func traceOf(ctx context.Context) *callTrace {
	if t, ok := ctx.Value(callTraceKey{}).(*callTrace); ok {
		return t
	}
	return &callTrace{}
}

// call asks the server for something, within its time. The error is a *lostError
// if the session has ended.
func (s *session) call(parent context.Context, do func(context.Context, *sdk.ClientSession) error) error {
	if s.suspect.Load() {
		if err := s.ping(parent); err != nil {
			return err
		}
	}
	var trace callTrace
	ctx, cancel := context.WithTimeout(context.WithValue(parent, callTraceKey{}, &trace), s.server.Timeout)
	defer cancel()
	err := do(ctx, s.client)
	notDelivered := !trace.sent.Load() || trace.absent.Load()
	switch {
	case err == nil:
		return nil
	case parent.Err() != nil:
		return parent.Err()
	case s.ctx.Err() != nil:
	case ctx.Err() != nil:
		s.suspect.Store(true)
		return fmt.Errorf("no answer after %v", s.server.Timeout)
	case !notDelivered:
		return errors.New(s.explain(err))
	}
	return s.lost(parent, err, notDelivered)
}

// lost ends the session, if it has not ended yet, and waits for that.
func (s *session) lost(ctx context.Context, err error, notDelivered bool) error {
	s.end(err)
	select {
	case <-s.ended:
		return &lostError{reason: s.reason, notDelivered: notDelivered}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ping makes sure that the server still answers.
func (s *session) ping(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, pingTimeout)
	defer cancel()
	err := s.client.Ping(ctx, nil)
	if wire, ok := errors.AsType[*jsonrpc.Error](err); err == nil || ok && wire.Code != codeUnsent {
		s.suspect.Store(false)
		return nil
	}
	if parent.Err() != nil {
		return parent.Err()
	}
	return s.lost(parent, errHung, true)
}

// lostError is a call whose session ended.
type lostError struct {
	reason       string
	notDelivered bool // the server cannot have carried it out
}

func (e *lostError) Error() string { return e.reason }

// explain puts an error of the SDK into words: without addresses and secrets,
// and bounded.
func (s *session) explain(err error) string {
	text := "it ended"
	urlError, isURL := errors.AsType[*url.Error](err)
	wire, isWire := errors.AsType[*jsonrpc.Error](err)
	switch {
	case isURL:
		text = urlError.Err.Error()
	case isWire && wire.Code != codeUnsent:
		text = fmt.Sprintf("%s (code %d)", wire.Message, wire.Code)
	case isWire:
		text = strings.ReplaceAll(err.Error(), wire.Message+": ", "")
	case errors.Is(err, sdk.ErrConnectionClosed): // after whom was called, what was said
		_, text, _ = strings.Cut(err.Error(), `": `)
	case err != nil && !errors.Is(err, io.EOF):
		text = err.Error()
	}
	return textcut.Clip(s.server.clean(text), maxError)
}
