package cluster

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
)

// Engine is this machine's nexus-cluster. Each time it starts, it is somewhere else, with another token.
type Engine interface {
	// Ready is where it takes clients now, or why it does not.
	Ready() (EngineReady, error)
}

const (
	dialPatience   = 2 * time.Second
	reconnectEvery = 100 * time.Millisecond
	// pingEvery has an engine that is frozen found out about after three of them.
	pingEvery = 5 * time.Second
)

// Link is a client of NATS that connects again whenever it has lost its server. Until then nothing is sent by it.
type Link struct {
	nc     *nats.Conn
	closed chan struct{}
}

// Connect connects to this machine's engine, as [SystemUser] or as one that has no name, "". It does not wait for it.
func Connect(e Engine, user string, log *zap.Logger) (*Link, error) {
	as := func() (name, secret string) {
		ready, _ := e.Ready() // without one it is not dialled
		return user, ready.Token
	}
	// Each dial asks where it is; the token may be of the engine that has died since, and is tried again.
	return connect("", log, Dialer(e), nats.UserInfoHandler(as), nats.IgnoreAuthErrorAbort())
}

// Dialer has a client of NATS connect to an engine, whatever the URL.
func Dialer(e Engine) nats.Option { return nats.SetCustomDialer(dialer{e}) }

// SystemUser is the client of an engine that sees and changes which servers of NATS there are; its password is the token.
const SystemUser = "system"

// ConnectTo connects to servers of NATS that are there already, at the URLs that are separated by commas, by the credentials in a file; "" for none. It
// does not wait for them.
func ConnectTo(urls, credentials string, log *zap.Logger) (*Link, error) {
	var options []nats.Option
	if credentials != "" {
		if err := safefile.CheckSecret(credentials); err != nil {
			return nil, fmt.Errorf("the credentials for NATS: %w", err)
		}
		options = append(options, nats.UserCredentials(credentials))
	}
	return connect(urls, log, options...)
}

func connect(urls string, log *zap.Logger, options ...nats.Option) (*Link, error) {
	l := &Link{closed: make(chan struct{})}
	var err error
	l.nc, err = nats.Connect(urls, append(options,
		nats.Name("nexus"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectEvery), nats.ReconnectJitter(reconnectEvery, reconnectEvery),
		nats.ReconnectBufSize(-1), // what is late is of no use: beats are old, and a connection has a hole
		nats.Timeout(dialPatience), nats.PingInterval(pingEvery),
		nats.ConnectHandler(func(*nats.Conn) { log.Info("reached NATS") }),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("reached NATS again") }),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() {
				log.Warn("NATS is not reached", zap.Error(err))
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("NATS", zap.Error(err)) }),
		nats.ClosedHandler(func(*nats.Conn) { close(l.closed) }),
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return l, nil
}

// NATS is the connection, which is the link's.
func (l *Link) NATS() *nats.Conn { return l.nc }

// Close closes it, and waits until nothing of it runs.
func (l *Link) Close() {
	l.nc.Close()
	<-l.closed
}

// dialer connects to where the engine is now.
type dialer struct{ engine Engine }

// Dial implements [nats.CustomDialer].
func (d dialer) Dial(_, _ string) (net.Conn, error) {
	ready, err := d.engine.Ready()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
	defer cancel()
	return ready.Dial(ctx)
}
