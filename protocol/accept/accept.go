// Package accept keeps a server accepting connections after errors of the system.
//
//	err := server.Serve(accept.Retry(ln, log)) // ends once ln is closed, by no other error
//
// A program of any agent can use up what all processes of a user share, and then
// accept(2), or the registration of the new descriptor with epoll, fails for the server
// too: with ENOSPC, ENOMEM or ENFILE. net/http takes most of these for the end of the
// listener.
package accept

import (
	"errors"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	minDelay    = 5 * time.Millisecond
	maxDelay    = time.Second
	logInterval = time.Minute // at least, from one logged failure to the next
)

// Retry returns a listener whose Accept tries again after each error of ln, in 5 ms at
// first and in 1 s at most, until ln is closed. It logs when such errors begin and when
// connections are accepted again, both at most once a minute. Close ends a wait at once.
// One goroutine at a time may call Accept; Close may be called from any.
func Retry(ln net.Listener, log *zap.Logger) net.Listener {
	return &listener{Listener: ln, log: log, closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	log       *zap.Logger
	closed    chan struct{}
	closeOnce sync.Once

	// Of Accept.
	logged  time.Time // when a failure was logged last
	failing bool      // it was, and its end was not
}

// Accept implements [net.Listener]. Its only errors are those of a closed listener.
func (l *listener) Accept() (net.Conn, error) {
	for delay := minDelay; ; delay = min(2*delay, maxDelay) {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			l.logSuccess()
			return c, nil
		case errors.Is(err, net.ErrClosed):
			return nil, err
		}
		l.logFailure(err)
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-l.closed:
			timer.Stop()
			return nil, net.ErrClosed
		}
	}
}

func (l *listener) logFailure(err error) {
	if l.failing || !l.logged.IsZero() && time.Since(l.logged) < logInterval {
		return
	}
	l.failing, l.logged = true, time.Now()
	l.log.Error("connections cannot be accepted", zap.Stringer("address", l.Addr()), zap.Error(err))
}

func (l *listener) logSuccess() {
	if l.failing {
		l.failing = false
		l.log.Info("connections are accepted again", zap.Stringer("address", l.Addr()), zap.Duration("after", time.Since(l.logged)))
	}
}

// Close implements [net.Listener]. It may be called again.
func (l *listener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
