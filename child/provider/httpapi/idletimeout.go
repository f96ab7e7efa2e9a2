package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// idleTimeout ends a context when the service has said nothing for a while.
type idleTimeout struct {
	timer *time.Timer
	limit time.Duration
}

// withIdleTimeout derives a context that ends with errIdle after limit, unless heard puts
// that off. stop releases it.
func withIdleTimeout(parent context.Context, limit time.Duration) (ctx context.Context, s *idleTimeout, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	s = &idleTimeout{limit: limit, timer: time.AfterFunc(limit, func() { cancel(errIdle) })}
	return ctx, s, func() {
		s.timer.Stop()
		cancel(nil)
	}
}

func (s *idleTimeout) reset() { s.timer.Reset(s.limit) }

// maxResponse bounds what is read of one response, in bytes. With what surrounds
// each token, the longest answers take a quarter of it.
const maxResponse = 256 << 20

// watchedBody is a body that tells of every piece that is read from it, so that a
// comment which keeps the connection alive counts as well. It is an error that
// it is longer than maxResponse.
// err is the error other than io.EOF that its reading ended with.
type watchedBody struct {
	io.Reader
	idle *idleTimeout
	read int
	err  error
}

func (l *watchedBody) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.idle.reset()
	if l.read += n; l.read > maxResponse {
		n, err = 0, &MalformedError{Problem: fmt.Sprintf("a response of more than %d MiB", maxResponse>>20)}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}
