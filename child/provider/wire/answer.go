package wire

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
)

// Ask makes one request, by t.Stream, and passes on its answer, by t.Emit. It
// returns what t.Outcome makes of the end.
type Ask func(ctx context.Context, t *Try, r provider.Request) error

// Answer asks for one answer, in as many tries as the options allow. A failed
// try that will be followed by another is told by a Retry. The last error is
// ErrContextWindow where the service says so, the error of ctx where that has
// ended, and else says what went wrong. Where the service refuses images, it is
// asked once more without them.
func (s *Service) Answer(ctx context.Context, r provider.Request, ask Ask) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		r := r
		for number := 1; ; number++ {
			t := &Try{service: s, yield: yield}
			err := t.run(ctx, r, ask)
			switch {
			case err == nil, t.left:
				return
			case ctx.Err() != nil:
				yield(nil, ctx.Err())
				return
			}
			var wait time.Duration
			var what string
			if !t.spoke && hasImages(r) && refusesImages(err) {
				r.Image, what = noImages, "once more without images"
				number--
			} else {
				var again bool
				if wait, again = s.delay(err, t.spoke, number); !again {
					yield(nil, s.Explain(err))
					return
				}
				what = fmt.Sprintf("try %d of %d in %v", number+1, s.options.MaxAttempts, wait.Round(time.Millisecond))
			}
			if !yield(provider.Retry{Reason: provider.Brief(s.Explain(err)) + "; " + what}, nil) {
				return
			}
			if err := sleep(ctx, wait); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// Try is one try for an answer.
type Try struct {
	service *Service
	yield   func(provider.Delta, error) bool
	quiet   *silence
	body    *listened // of the last response; nil until the service has answered
	spoke   bool      // deltas were passed on
	left    bool      // the listener has gone
}

func (t *Try) run(ctx context.Context, r provider.Request, ask Ask) error {
	ctx, quiet, stop := watch(ctx, t.service.options.IdleTimeout)
	defer stop()
	t.quiet = quiet
	return ask(ctx, t, r)
}

// Stream posts question, as JSON, to path, which begins with a slash, and passes
// the events of the answer to take. It returns without an error at the end of the
// stream, when the listener has gone, and when take returns io.EOF; and else with
// the error of take, of the connection, or of the service.
func (t *Try) Stream(ctx context.Context, path string, question any, take func(Event) error) error {
	body, err := json.Marshal(question, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	request, err := t.service.request(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	t.body = nil
	response, err := t.service.do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() // how the answer ended is known by then
	t.body = &listened{Reader: response.Body, silence: t.quiet}
	for event, err := range events(t.body) {
		if err == nil {
			err = take(event)
		}
		switch {
		case errors.Is(err, io.EOF), t.left:
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// Emit passes on a delta. The listener may take its time.
func (t *Try) Emit(d provider.Delta) {
	if t.left {
		return
	}
	t.quiet.timer.Stop()
	t.spoke = true
	t.left = !t.yield(d, nil)
	t.quiet.heard()
}

// Spoke reports whether anything was passed on.
func (t *Try) Spoke() bool { return t.spoke }

// Outcome finds out what the end of a stream stands for: err is what Stream
// returned, whole says that the service had said that it was done. The result
// is nil if the answer is whole: what broke then, if anything, is only the
// good-bye.
func (t *Try) Outcome(ctx context.Context, err error, whole bool) error {
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
	if r.Image == nil {
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

func noImages(protocol.Image) ([]byte, error) { return nil, errNoImages }

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
