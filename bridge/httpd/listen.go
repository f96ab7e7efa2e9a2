package httpd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/accept"
)

func ownHosts(port string) map[string]bool {
	hosts := map[string]bool{}
	for _, name := range []string{"127.0.0.1", "localhost", "[::1]"} {
		hosts[name+":"+port] = true
		if port == "80" {
			hosts[name] = true
		}
	}
	return hosts
}

// CheckLoopback reports why host is not an address to listen on: it must be
// 127.0.0.1, localhost or ::1.
func CheckLoopback(host string) error {
	switch strings.Trim(host, "[]") {
	case "127.0.0.1", "localhost", "::1":
		return nil
	}
	return fmt.Errorf("refusing to listen on %q: only 127.0.0.1, localhost and ::1 are allowed", host)
}

// Listen listens on a loopback address. Port 0 takes a free one.
func Listen(host string, port int) (net.Listener, error) {
	if err := CheckLoopback(host); err != nil {
		return nil, err
	}
	if host == "localhost" {
		host = "127.0.0.1" // whatever a resolver may think of the name
	}
	var config net.ListenConfig
	return config.Listen(context.Background(), "tcp", net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port)))
}

// closeTimeout is how long connections may take to end once nothing runs, and then how long
// clients may take to receive the last answers.
const closeTimeout = time.Second

// newServers makes what serves the connections of clients, and those of other machines.
func (s *Server) newServers() {
	base, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.machines = &http.Server{
		Handler:                      http.HandlerFunc(s.serveMachine),
		DisableGeneralOptionsHandler: true,
		ReadTimeout:                  s.o.ReadTimeout,
		IdleTimeout:                  s.o.IdleTimeout,
		MaxHeaderBytes:               maxMachineHeader,
		ErrorLog:                     zap.NewStdLog(s.log.Named("machines")),
		BaseContext:                  func(net.Listener) context.Context { return base },
	}
	s.server = &http.Server{
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
				one.limiter.setState(one, state)
			}
		},
	}
}

// Serve serves the connections of ln until Stop, or until ln is closed by another, which is
// its error. No other error of ln ends it (package accept). ln is closed. It may be called
// once; Stop must follow.
func (s *Server) Serve(ln net.Listener) error {
	return s.serve(listener{Listener: accept.Retry(ln, s.log), limiter: s.conns})
}

func (s *Server) serve(ln listener) error {
	err := s.server.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", ln.Addr(), err)
}

// StopAccepting makes the server refuse every request that comes from now on (503,
// SERVER_DRAINING); those under way go on.
func (s *Server) StopAccepting() { s.handlers.Close() }

// Stop refuses new requests, ends the contexts of those under way for the cause, and closes
// the connections. Calls that are allowed while the server drains have a second before that: one of
// them may have ended the last turn. It returns once no handler runs, and all connections are closed.
func (s *Server) Stop(cause error) {
	s.handlers.Close()
	s.drained.Close()
	answered := time.NewTimer(closeTimeout)
	defer answered.Stop()
	select {
	case <-s.drained.Empty():
	case <-answered.C:
	}
	s.cancel(cause)
	closed, done := context.WithTimeout(context.Background(), closeTimeout)
	defer done()
	for _, server := range []*http.Server{s.server, s.machines} {
		if err := server.Shutdown(closed); err != nil {
			_ = server.Close() // connections that say nothing are cut
		}
	}
	<-s.handlers.Empty()
	lingered, over := context.WithTimeout(context.Background(), closeTimeout)
	defer over()
	s.conns.close(lingered)
	s.o.Lines.Close()
}
