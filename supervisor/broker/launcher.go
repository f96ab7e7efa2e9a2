package broker

import (
	"context"

	"nexus.internal/supervisor"
)

// Launcher gives each incarnation that inner launches its agent's socket. It
// is there before the process starts and goes once that has ended.
func (b *Broker) Launcher(inner supervisor.Launcher) supervisor.Launcher {
	return &launcher{broker: b, inner: inner}
}

type launcher struct {
	broker *Broker
	inner  supervisor.Launcher
}

func (l *launcher) Launch(ctx context.Context, s supervisor.Spec, again bool) (supervisor.Conn, error) {
	sock, err := l.broker.openSocket(s.ID)
	if err != nil {
		return nil, &supervisor.StartError{Err: err}
	}
	s.ModelSocket, s.Shares = sock.path, l.broker.shares(s.ID)
	conn, err := l.inner.Launch(ctx, s, again)
	if err != nil {
		sock.close()
		return nil, err
	}
	sock.admit(conn.PID())
	return &connWithSocket{Conn: conn, socket: sock}, nil
}

// connWithSocket is an incarnation with a socket.
type connWithSocket struct {
	supervisor.Conn
	socket *agentSocket
}

// Stop implements [supervisor.Conn]: it is the last thing that is asked of an
// incarnation, whatever ended it.
func (c *connWithSocket) Stop(ctx context.Context) supervisor.Exit {
	exit := c.Conn.Stop(ctx)
	c.socket.close()
	return exit
}
