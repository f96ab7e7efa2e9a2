package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"go.uber.org/zap"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/safefile"
)

// socketGrace is how long the end of the server waits for answers that are being written.
const socketGrace = time.Second

// serveSocket answers requests at a unix socket in run, in the home, which is its user's alone and which no agent's program reaches (SPEC §2.1).
func serveSocket(home config.Home, name string, handler http.Handler, log *zap.Logger) (*socket, error) {
	path := home.Path("run", name)
	// One that is there is of a killed server: the caller holds the home.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make the socket %s: %w", path, err)
	}
	listener, err := safefile.ListenSocket(path)
	if err != nil {
		return nil, fmt.Errorf("make the socket %s: %w", path, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &socket{path: path, requests: cancel, served: make(chan struct{})}
	s.server = &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: zap.NewStdLog(log.Named(name)),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(listener) // ends by Shutdown alone
	}()
	return s, nil
}

// socket is what answers requests at one.
type socket struct {
	path     string
	requests context.CancelFunc // of all
	server   *http.Server
	served   chan struct{} // closed once nothing is accepted any more
}

// close removes the socket and returns once nothing is being answered, or after socketGrace.
func (s *socket) close() {
	s.requests()
	ctx, cancel := context.WithTimeout(context.Background(), socketGrace)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	<-s.served
	_ = os.Remove(s.path)
}
