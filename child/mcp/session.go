package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/textcut"
)

const (
	// connectTimeout is how long a server may take to start and to say what it
	// has.
	connectTimeout = 30 * time.Second
	// pingTimeout is how long a server may take to answer a ping, once it has
	// left a call without an answer.
	pingTimeout = 5 * time.Second
	// refreshPause lies between two looks at a server's lists, at least.
	refreshPause = time.Second
	// maxError is the longest text of an error, in bytes.
	maxError = 2 << 10
	// maxErrorBody is how much is read of an answer that is an error, in bytes.
	maxErrorBody = 64 << 10
)

var errHung = errors.New("it does not answer any more")

// session is one connection to a server.
type session struct {
	server       Server
	log          *zap.Logger
	link         link
	client       *client                 // nil unless the link was opened
	offers       initializeResult        // what the server can do
	ctx          context.Context         //nolint:containedctx // ends with the session, and its calls with it
	end          context.CancelCauseFunc // asks for the end, and says why
	listsChanged chan struct{}           // has room for one: the lists have changed
	suspect      atomic.Bool             // a call got no answer
	reason       string                  // of its end, once close has returned
	ended        chan struct{}           // closed by its managedServer when all that is known
}

// link is what lies below a session.
type link interface {
	// open connects the client, which is closed before release.
	open(s *session, c *client) (transport, error)
	// release waits until nothing is left. It says how the server's program
	// ended, "" if there is none or nothing to say. Without an open that went well it does nothing.
	release() string
}

// dial connects to a server and learns what it has. The session ends with ctx;
// dial is bounded by connectPatience. On an error nothing of it is left.
func dial(ctx context.Context, server Server, l link, cwd string, log *zap.Logger) (*session, catalog, error) {
	s := &session{server: server, log: log, link: l, listsChanged: make(chan struct{}, 1), ended: make(chan struct{})}
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
	c := newClient(&flowLimit{}, cwd, s.listsChanged)
	transport, err := s.link.open(s, c)
	if err != nil {
		return catalog{}, err
	}
	c.start(transport)
	s.client = c
	if s.offers, err = c.initialize(s.ctx); err != nil {
		return catalog{}, err
	}
	return s.list(s.ctx)
}

// serve looks after the session until it has ended: refresh is called when its
// lists have changed.
func (s *session) serve(refresh func()) {
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
}

// close ends the session, and returns when nothing of it is left. err is why,
// unless something has ended it already. The managedServer closes ended.
func (s *session) close(err error) {
	s.end(err)
	if s.client != nil {
		s.client.close()
	}
	ended := s.link.release()
	s.reason = s.explain(context.Cause(s.ctx))
	if ended != "" {
		s.reason += ": " + ended
	}
}

// call asks the server for something, within its time. The error is a *lostError
// if the session has ended.
func (s *session) call(parent context.Context, do func(context.Context, *client) error) error {
	if s.suspect.Load() {
		if err := s.ping(parent); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(parent, s.server.Timeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	err := do(ctx, s.client)
	_, notDelivered := errors.AsType[*undeliveredError](err)
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
		if _, answered := errors.AsType[*rpcError](err); !answered {
			return fmt.Errorf("%s: the call may have taken effect", s.explain(err))
		}
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
	err := s.client.call(ctx, "ping", nil, nil)
	if _, answered := errors.AsType[*rpcError](err); err == nil || answered {
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

// explain puts an error into words: without addresses and secrets, and bounded.
func (s *session) explain(err error) string {
	text := "it ended"
	if urlError, ok := errors.AsType[*url.Error](err); ok {
		text = urlError.Err.Error()
	} else if err != nil && !errors.Is(err, io.EOF) {
		text = err.Error()
	}
	return textcut.Clip(s.server.clean(text), maxError)
}
