package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"

	"nexus.internal/protocol/accept"
	"nexus.internal/protocol/safefile"
)

// front takes the clients of a server of NATS at a unix socket, which this user alone connects to. A port on loopback is there for each user of the machine: connections
// without the secret would take all files that this process may open, and a server of NATS for which no file is to be had when it writes ends. It listens at ports alone, so
// each connection is copied to one within this process.
type front struct {
	path     string
	listener net.Listener
	running  sync.WaitGroup // what takes connections, and copies them
}

// listen makes the socket, in the place of one that was left behind. Connections wait until [front.serve].
func listen(path string, log *zap.Logger) (*front, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make the socket for clients: %w", err)
	}
	l, err := safefile.ListenSocket(path)
	if err != nil {
		return nil, fmt.Errorf("make the socket for clients: %w", err)
	}
	return &front{path: path, listener: accept.Retry(l, log)}, nil
}

// serve takes connections from now on.
func (f *front) serve(s *server.Server) {
	f.running.Go(func() {
		for {
			c, err := f.listener.Accept()
			if err != nil {
				return // it was closed
			}
			f.running.Go(func() { join(c, s) })
		}
	})
}

// join copies a connection to one of the server's, until either ends.
func join(c net.Conn, s *server.Server) {
	defer c.Close()
	within, err := s.InProcessConn()
	if err != nil {
		return // the server ends
	}
	var up sync.WaitGroup
	defer up.Wait()
	up.Go(func() {
		_, _ = io.Copy(within, c)
		within.Close()
	})
	_, _ = io.Copy(c, within)
	within.Close()
	c.Close()
}

// close takes no more connections, and removes the socket.
func (f *front) close() {
	_ = f.listener.Close()
	_ = os.Remove(f.path)
}
