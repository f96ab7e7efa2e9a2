package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/eventstream"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/protocol/tokencount"
)

// maxEvent bounds an event of a stream, in bytes.
const maxEvent = 32 << 20

var errLongEvent = &MalformedError{Problem: fmt.Sprintf("it has more than %d MiB", maxEvent>>20)}

// AttemptFunc makes one request, by t.Stream, and passes on its answer, by t.Emit. It
// returns what t.Outcome makes of the end.
type AttemptFunc func(ctx context.Context, t *Attempt, r provider.Request) error

// Answer asks for one answer, in as many tries as the options allow. A failed
// try that will be followed by another is announced by a Retry. The last error is
// ErrContextWindow where the service says so, the error of ctx where that has
// ended, and else says what went wrong. Where the service refuses images, it is
// asked once more without them.
func (s *Service) Answer(ctx context.Context, r provider.Request, attempt AttemptFunc) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		r := r
		for number := 1; ; number++ {
			t := &Attempt{service: s, model: r.Model, yield: yield}
			err := t.run(ctx, r, attempt)
			if (err != nil || t.abandoned) && (t.body != nil || t.answered.Form != tokencount.EventStream) && r.Lost != nil {
				r.Lost.Add(t.Usage())
			}
			switch {
			case err == nil, t.abandoned:
				return
			case ctx.Err() != nil:
				yield(nil, ctx.Err())
				return
			}
			var wait time.Duration
			var what string
			if !t.emitted && hasImages(r) && refusesImages(err) {
				r.Images, what = noImages{}, "once more without images"
				number--
			} else {
				var again bool
				if wait, again = s.delay(err, t.emitted, number); !again {
					yield(nil, s.Explain(err))
					return
				}
				what = fmt.Sprintf("try %d of %d in %v", number+1, s.options.MaxAttempts, wait.Round(time.Millisecond))
			}
			again := provider.Retry{Reason: provider.Brief(s.Explain(err)) + "; " + what, Attempt: number + 1, MaxAttempts: s.options.MaxAttempts, Wait: wait}
			if !yield(again, nil) {
				return
			}
			if ratelimit.Sleep(ctx, wait) != nil {
				yield(nil, ctx.Err())
				return
			}
		}
	}
}

// Attempt is one try for an answer.
type Attempt struct {
	service   *Service
	model     string // that is asked
	yield     func(provider.Delta, error) bool
	idle      *idleTimeout
	body      *watchedBody // of the last response; nil until the service has answered
	asked     tokencount.Request
	answered  tokencount.Answer
	emitted   bool // deltas were passed on
	abandoned bool // the listener has gone
}

func (t *Attempt) run(ctx context.Context, r provider.Request, attempt AttemptFunc) error {
	ctx, idle, stop := withIdleTimeout(ctx, t.service.options.IdleTimeout)
	defer stop()
	t.idle = idle
	return attempt(ctx, t, r)
}

// Stream posts question, as JSON, to path, which begins with a slash, and passes
// the events of the answer that have data to take. It returns without an error at the end of the
// stream, when the listener has gone, and when take returns io.EOF; and else with
// the error of take, of the connection, or of the service.
func (t *Attempt) Stream(ctx context.Context, path string, question any, take func(eventstream.Event) error) error {
	body, err := json.Marshal(question, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	request, err := t.service.request(ctx, http.MethodPost, path, nil, body, t.model)
	if err != nil {
		return err
	}
	t.body, t.asked, t.answered = nil, tokencount.Request{}, tokencount.Answer{Form: tokencount.EventStream}
	_, _ = t.asked.Write(body)
	response, err := t.service.do(request, &t.answered)
	if err != nil {
		return err
	}
	defer response.Body.Close() // how the answer ended is known by then
	t.body = &watchedBody{Reader: io.TeeReader(response.Body, &t.answered), idle: t.idle}
	for event, err := range eventstream.Read(t.body, maxEvent) {
		switch {
		case errors.Is(err, eventstream.ErrTooLong):
			err = errLongEvent
		case err == nil && len(event.Data) > 0:
			err = take(event)
		}
		switch {
		case errors.Is(err, io.EOF), t.abandoned:
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// Emit passes on a delta. The listener may take its time.
func (t *Attempt) Emit(d provider.Delta) {
	if t.abandoned {
		return
	}
	t.idle.timer.Stop()
	t.emitted = true
	t.abandoned = !t.yield(d, nil)
	t.idle.reset()
}

// Emitted reports whether anything was passed on.
func (t *Attempt) Emitted() bool { return t.emitted }

// Usage is what the request and the answer so far used, by the service's count, and by an
// estimate for what it did not count. A broker charges the same.
func (t *Attempt) Usage() protocol.TurnUsage {
	n := t.answered.Count(t.asked.Tokens())
	return protocol.TurnUsage{
		InputTokens: n.Input + n.CacheRead + n.CacheCreation, OutputTokens: n.Output,
		CacheReadInputTokens: n.CacheRead, CacheCreationInputTokens: n.CacheCreation, Estimated: n.Estimated,
	}
}

// Outcome finds out what the end of a stream stands for: err is what Stream
// returned, whole says that the service had said that it was done. The result
// is nil if the answer is whole: what broke then, if anything, is only the
// good-bye.
func (t *Attempt) Outcome(ctx context.Context, err error, whole bool) error {
	reason := context.Cause(ctx)
	switch {
	case whole && (err == nil || reason == nil || errors.Is(reason, errIdle)):
		return nil
	case err == nil:
		return errCutOff
	case reason != nil:
		return reason
	}
	_, refused := errors.AsType[*ServiceError](err)
	_, malformed := errors.AsType[*MalformedError](err)
	if !refused && !malformed && t.body != nil && t.body.err != nil {
		return fmt.Errorf("%w: %w", errCutOff, t.body.err)
	}
	return err
}

func hasImages(r provider.Request) bool {
	if r.Images == nil {
		return false
	}
	for _, m := range r.Messages {
		if len(m.Images) > 0 {
			return true
		}
	}
	return false
}

var errNoImages = errors.New("the model takes no images")

// noImages implements [provider.ImageReader].
type noImages struct{}

func (noImages) Get(protocol.Image) ([]byte, error) { return nil, errNoImages }

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
