package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// silence ends a context when the service has said nothing for a while.
type silence struct {
	timer *time.Timer
	limit time.Duration
}

// watch derives a context that ends with errIdle after limit, unless heard puts
// that off. stop releases it.
func watch(parent context.Context, limit time.Duration) (ctx context.Context, s *silence, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	s = &silence{limit: limit, timer: time.AfterFunc(limit, func() { cancel(errIdle) })}
	return ctx, s, func() {
		s.timer.Stop()
		cancel(nil)
	}
}

func (s *silence) heard() { s.timer.Reset(s.limit) }

// maxResponse bounds what is read of one response, in bytes. With what surrounds
// each token, the longest answers take a quarter of it.
const maxResponse = 256 << 20

// listened is a body that tells of every piece that is read from it, so that a
// comment which keeps the connection alive counts as well. It is an error that
// it is longer than maxResponse.
// err is the error other than io.EOF that its reading ended with.
type listened struct {
	io.Reader
	silence *silence
	read    int
	err     error
}

func (l *listened) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.silence.heard()
	if l.read += n; l.read > maxResponse {
		n, err = 0, &MalformedError{Problem: fmt.Sprintf("a response of more than %d MiB", maxResponse>>20)}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}
