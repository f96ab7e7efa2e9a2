package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/httpd"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor"
)

// cutTimeout is how long turns may take to end that are cancelled with the server:
// their senders hear how they ended.
const cutTimeout = time.Second

// Drain makes the server refuse new requests (503, -32001 SERVER_DRAINING) and
// Serve return once the running ones are done. It returns at once and may be
// called again.
func (s *Server) Drain() { s.requests.Close() }

// Draining is closed once the server refuses new requests, also because a client has called
// shutdown_server.
func (s *Server) Draining() <-chan struct{} { return s.requests.Closing() }

// Serve serves the connections of ln, and of Options.Remote, until ctx ends, Drain is called or
// listening fails. Then it drains: new requests are refused, running ones and
// the turns of all agents, also those that nobody waits for, may take up to
// DrainTimeout. Then nothing begins any more, what waits is answered as SERVER_DRAINING
// first, what runs is cancelled next, and event streams end. Turns that do not heed
// that end with the supervisor. It returns when no handler runs any more; nil unless listening
// failed. Both are closed. Serve may be called once.
//
// A server of a cluster serves the connections of the other machines, too, and claims what is saved here.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	beside, err := s.beginMachines()
	if err != nil {
		ln.Close()
		if s.o.Remote != nil {
			s.o.Remote.Close()
		}
		s.drain()
		s.agents.Close()
		return err
	}
	defer beside()
	ended := make(chan error, 2)
	listeners := 1
	go func() { ended <- s.http.Serve(ln) }()
	if s.o.Remote != nil {
		listeners++
		go func() { ended <- s.http.ServeTLS(s.o.Remote) }()
	}
	select {
	case err = <-ended:
		listeners--
	case <-ctx.Done():
	case <-s.requests.Closing():
	}
	s.drain()
	for range listeners {
		err = errors.Join(err, <-ended)
	}
	s.agents.Close()
	return err // of the listeners
}

// beginMachines begins what a server of a cluster does beside serving clients. end waits for its end, after the drain.
func (s *Server) beginMachines() (end func(), err error) {
	if s.forward == nil {
		return func() {}, nil
	}
	ln, err := s.o.Machines.Listen()
	if err != nil {
		return nil, fmt.Errorf("listen to other machines: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { agents.ClaimSaved(ctx, s.agents) })
	work.Go(func() { agents.TakeOver(ctx, s.agents) })
	work.Go(func() { agents.EvictTaken(ctx, s.agents) })
	work.Go(func() { agents.ReleaseGone(ctx, s.agents) })
	work.Go(func() { s.followKeys(ctx) })
	work.Go(func() {
		if err := httpd.ShareRates(ctx, s.http, s.o.Machines); err != nil {
			s.log.Error("each machine counts the requests of a key alone", zap.Error(err))
		}
	})
	work.Go(func() { agents.HandOver(ctx, s.agents) })
	work.Go(func() {
		if err := s.http.ServeMachines(ln); err != nil {
			s.log.Error("other machines cannot ask any more", zap.Error(err))
		}
	})
	return func() {
		cancel()
		work.Wait()
		s.forward.Close()
	}, nil
}

// followAgain is how long after a failure the keys of the cluster are followed again.
const followAgain = 200 * time.Millisecond

// followKeys follows the keys of the cluster until ctx ends.
func (s *Server) followKeys(ctx context.Context) {
	var told string
	for ctx.Err() == nil {
		err := s.o.Keys.Follow(ctx)
		if err != nil && err.Error() != told { // once for each reason
			told = err.Error()
			s.log.Warn("the keys of the cluster are not all as they should be here; it is tried again", zap.Error(err))
		}
		_ = ratelimit.Sleep(ctx, followAgain)
	}
}

// drain ends what the server does, in the order that Serve promises.
func (s *Server) drain() {
	s.requests.Close()
	drained, over := context.WithTimeout(context.Background(), s.o.DrainTimeout)
	defer over()
	select {
	case <-s.requests.Empty():
	case <-drained.Done():
	}
	if err := s.o.Supervisor.WaitIdle(drained); err != nil {
		s.log.Warn("turns run longer than the server waits for them", zap.Duration("waited", s.o.DrainTimeout))
	}
	s.http.StopAccepting()
	s.plans.Interrupt()
	s.o.Supervisor.StopAccepting() // first, so that nothing takes the place of what is cut off next
	cut, given := context.WithTimeout(context.Background(), cutTimeout)
	defer given()
	if err := s.o.Supervisor.CancelRunning(cut); err != nil {
		s.log.Warn("turns do not heed their cancel", zap.Duration("waited", cutTimeout))
	}
	s.http.Stop(supervisor.ErrDraining)
	<-s.requests.Empty()
}
