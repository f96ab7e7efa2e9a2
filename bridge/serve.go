package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"nexus.internal/supervisor"
)

// closeTimeout is how long connections may take to end once nothing runs.
const closeTimeout = time.Second

// cutTimeout is how long turns may take to end that are cancelled with the server:
// their senders hear how they ended.
const cutTimeout = time.Second

// Drain makes the server refuse new requests (503, -32001 SERVER_DRAINING) and
// Serve return once the running ones are done. It returns at once and may be
// called again.
func (s *Server) Drain() { s.requests.Close() }

// Serve serves the connections of ln until ctx ends, Drain is called or
// listening fails. Then it drains: new requests are refused, running ones and
// the turns of all agents, also those that nobody waits for, may take up to
// DrainTimeout. Then nothing begins any more, what waits is answered as SERVER_DRAINING
// first, what runs is cancelled next, and event streams end. Turns that do not heed
// that end with the supervisor. It returns when no handler runs any more; nil unless listening
// failed. ln is closed. Serve may be called once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	all := newCrowd(s.o.MaxStrangers)
	server := &http.Server{
		Handler:                      s,
		DisableGeneralOptionsHandler: true,
		ReadTimeout:                  s.o.ReadTimeout,
		IdleTimeout:                  s.o.IdleTimeout,
		MaxHeaderBytes:               maxHeader - headerSlop,
		ErrorLog:                     zap.NewStdLog(s.log.Named("http")),
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  withConn,
		ConnState: func(c net.Conn, state http.ConnState) {
			if one, ok := c.(*conn); ok {
				all.turn(one, state)
			}
		},
	}
	var err error // of the listener; to be read once ended is closed
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = server.Serve(listener{Listener: ln, crowd: all})
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	case <-s.requests.Closing():
	}
	s.drain(server, cancel)
	<-ended
	s.strangers.close()
	s.agents.Close()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// drain ends what the server does, in the order that Serve promises.
func (s *Server) drain(server *http.Server, cancel context.CancelCauseFunc) {
	s.requests.Close()
	drained, over := context.WithTimeout(context.Background(), s.o.DrainTimeout)
	defer over()
	select {
	case <-s.requests.Empty():
	case <-drained.Done():
	}
	if err := s.o.Supervisor.Settle(drained); err != nil {
		s.log.Warn("turns run longer than the server waits for them", zap.Duration("waited", s.o.DrainTimeout))
	}
	s.handlers.Close()
	s.plans.Interrupt()
	s.o.Supervisor.Refuse() // first, so that nothing takes the place of what is cut off next
	cut, given := context.WithTimeout(context.Background(), cutTimeout)
	defer given()
	if err := s.o.Supervisor.Cut(cut); err != nil {
		s.log.Warn("turns do not heed their cancel", zap.Duration("waited", cutTimeout))
	}
	cancel(supervisor.ErrDraining)

	closed, done := context.WithTimeout(context.Background(), closeTimeout)
	defer done()
	if err := server.Shutdown(closed); err != nil {
		_ = server.Close() // connections that say nothing are cut
	}
	<-s.requests.Empty()
	<-s.handlers.Empty()
}
