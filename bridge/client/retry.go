package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/homelock"
	"nexus.internal/protocol/ratelimit"
)

// DefaultRetries is how often a request is tried again unless Options say
// otherwise. With the pauses, that is about six seconds.
const DefaultRetries = 5

const (
	firstPause = 200 * time.Millisecond // doubled from try to try, and half of it left to chance
	longPause  = 5 * time.Second
	// longWait is the longest Retry-After that is waited for.
	longWait = time.Minute
)

// ConnError says that the connection could not be had, or broke. Whether the
// server did what it was asked for is then not known.
type ConnError struct{ Err error }

func (e *ConnError) Error() string { return e.Err.Error() }
func (e *ConnError) Unwrap() error { return e.Err }

// broken is err of a connection, unless it is the caller's doing or the server
// could not prove itself.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrUnproved) || errors.Is(err, ErrUntrusted) || isKeysUnknown(err) {
		return err
	}
	return &ConnError{err}
}

// again tries until it succeeds, fails for good, or was tried often enough. What
// may not be repeated is tried again only where the server took no key of ours,
// and so nothing else, and another key is found. One address after the other is one try.
func (c *Client) again(ctx context.Context, repeatable bool, try func() error) error {
	var round []error // of addresses where nothing was sent, one after the other
	for n := 0; ; n++ {
		key, at := c.keys.now().key, c.place.Load()
		err := try()
		if err == nil {
			return nil
		}
		if (errors.Is(err, ErrNoServer) || errors.Is(err, ErrUnproved)) && c.moved(at.base) {
			continue // the request was not sent, so this is not counted
		}
		if unsent(err) && ctx.Err() == nil && len(round) < len(c.bases)-1 && c.next(at) {
			round = append(round, err)
			n--
			continue
		}
		if round = append(round, err); unsent(err) && len(round) > 1 {
			err = none(round)
		}
		round = nil
		if elsewhere(err) {
			c.next(at)
		}
		if (keyless(err) || isKeysUnknown(err)) && c.keys.refused(key) {
			continue
		}
		if keyless(err) {
			return err
		}
		if n >= c.retries {
			return err
		}
		after, ok := later(err)
		ok = ok || draining(err) && len(c.bases) > 1
		if errors.Is(err, ErrNoServer) && !c.mayStart() {
			return err
		}
		if !ok || !repeatable || after > longWait {
			return err
		}
		if _, broke := errors.AsType[*ConnError](err); broke {
			c.silent.Store(true)
		}
		if ended := ratelimit.Sleep(ctx, max(after, backoff(n))); ended != nil {
			return fmt.Errorf("%w, before it was tried again: %w", ended, err)
		}
	}
}

// none is the error where no address was reached. Of machines of which one does not know its keys yet, it is that one's, with what the others said: the key
// may be good, and they may be back soon.
func none(round []error) error {
	if at := slices.IndexFunc(round, isKeysUnknown); at >= 0 {
		err := round[at]
		for _, other := range slices.Delete(slices.Clone(round), at, at+1) {
			err = fmt.Errorf("%w; %v", err, other) //nolint:errorlint // it is not what is wrong
		}
		return err
	}
	err := round[0]
	for _, next := range round[1:] {
		err = fmt.Errorf("%w; %w", err, next)
	}
	return err
}

// elsewhere reports whether another machine may do what this one did not. Which machine is asked for an agent of one
// that is lost makes no difference.
func elsewhere(err error) bool {
	_, broke := errors.AsType[*ConnError](err)
	return broke || draining(err) || KindOf(err) == api.KindNoQuorum || errors.Is(err, ErrUnproved) || errors.Is(err, ErrUntrusted)
}

// moved reports whether the server that is meant listens elsewhere than at base by now; then it
// is called there.
func (c *Client) moved(base string) bool {
	if c.home == "" {
		return false
	}
	server, err := homelock.Find(c.home)
	at, failed := url.Parse(base)
	if err != nil || failed != nil || !server.Runs || server.Port == 0 || at.Port() == strconv.Itoa(server.Port) {
		return false
	}
	at.Host = net.JoinHostPort(at.Hostname(), strconv.Itoa(server.Port))
	c.keys.move(server.Port)
	c.place.Store(&place{base: at.String()})
	return true
}

// mayStart reports whether a server may soon listen where none does: one that has
// answered us may start again, and one that holds the home is about to listen.
func (c *Client) mayStart() bool {
	if c.reached.Load() {
		return true
	}
	if c.keys.lookup == nil || c.keys.lookup.Home == "" {
		return false
	}
	home, err := homelock.Find(c.keys.lookup.Home)
	return err == nil && home.Runs && (home.Port == 0 || strings.HasSuffix(c.URL(), ":"+strconv.Itoa(home.Port)))
}

// isKeysUnknown reports whether err is keysUnknown, which alone comes before anything is sent.
func isKeysUnknown(err error) bool { return unsent(err) && KindOf(err) == api.KindNoQuorum }

func keyless(err error) bool {
	return KindOf(err) == api.KindAuthenticationFailed || errors.Is(err, ErrUnproved)
}

// later reports whether err may pass with time, and how long the server asks to
// wait. That the server is shutting down is told at once: it goes on for as long as its
// turns do, and takes nothing any more.
func later(err error) (after time.Duration, ok bool) {
	if draining(err) {
		return 0, false
	}
	if e, refused := errors.AsType[*RPCError](err); refused {
		return e.RetryAfter, e.HTTPStatus == http.StatusTooManyRequests || e.HTTPStatus == http.StatusServiceUnavailable
	}
	_, ok = errors.AsType[*ConnError](err)
	return 0, ok
}

func draining(err error) bool { return KindOf(err) == api.KindServerDraining }

// backoff is the pause after try n, which counts from 0.
func backoff(n int) time.Duration {
	most := min(firstPause<<min(n, 10), longPause)
	return most/2 + rand.N(most/2+1)
}

// retryAfter is Retry-After, in whole seconds as our servers give it.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// encode writes the parameters of a method; nil for none. It gives a request that
// is done once under its request_id one, and reports whether it may be repeated.
func encode(method string, params any) (raw jsontext.Value, repeatable bool, err error) {
	raw = jsontext.Value("{}")
	if params != nil {
		if raw, err = json.Marshal(params); err != nil {
			return nil, false, fmt.Errorf("call %s: encode the parameters: %w", method, err)
		}
	}
	m, known := api.Find(method)
	if !m.Once() {
		return raw, known && m.Effect == api.Reads, nil
	}
	id := gjson.GetBytes(raw, "request_id")
	if !id.Exists() {
		member := `{"request_id":` + strconv.Quote(uuid.NewString())
		rest := strings.TrimPrefix(string(raw), "{")
		if len(rest) > 1 {
			member += ","
		}
		raw = jsontext.Value(member + rest)
	}
	return raw, !id.Exists() || id.Type == gjson.String, nil
}
