package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/jsonrpc"
)

// identity is a key with the connections to servers that have proved to have it. A key
// has connections of its own: a server that proved another one, which was replaced or
// revoked since, may be a stranger. It does not change.
type identity struct {
	key  auth.Key // zero for none
	http *http.Client
}

func newIdentity(key auth.Key, how dialing) *identity {
	t := transport()
	p := &prover{key: key, dialing: how}
	t.DialContext, t.DialTLSContext = p.dial, p.dialTLS
	return &identity{key: key, http: &http.Client{
		Transport: t,
		// The key must not follow a redirect; our servers send none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// keys is the key of a client. It is safe for concurrent use.
type keys struct {
	mu     sync.Mutex   // guards all below
	lookup *auth.Lookup // nil where the key was given
	how    dialing
	held   *identity
}

func newKeys(key auth.Key, lookup *auth.Lookup, how dialing) (*keys, error) {
	if !key.IsZero() || lookup == nil {
		return &keys{how: how, held: newIdentity(key, how)}, nil
	}
	found, source, err := auth.Discover(*lookup)
	if errors.Is(err, auth.ErrNoKey) && lookup.Home != "" {
		return nil, fmt.Errorf("%w; if no server runs, start one with nexus serve", err)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API key (%s): %w", cmp.Or(source, "nowhere"), err)
	}
	own := *lookup // its port changes
	return &keys{lookup: &own, how: how, held: newIdentity(found, how)}, nil
}

func (k *keys) now() *identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held
}

// refused looks for a key again, since the server does not have the one that was
// tried, and reports whether there is another now.
func (k *keys) refused(tried auth.Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lookup == nil {
		return false
	}
	found, _, err := auth.Discover(*k.lookup)
	if err == nil && !k.held.key.Matches(found.Reveal()) {
		k.held.http.CloseIdleConnections() // also those that are busy, once they are idle
		k.held = newIdentity(found, k.how)
	}
	return !k.held.key.Matches(tried.Reveal())
}

// move looks for the key of the home's server that listens on port now.
func (k *keys) move(port int) {
	k.mu.Lock()
	held := k.held.key
	if k.lookup != nil {
		k.lookup.Port = port
	}
	k.mu.Unlock()
	k.refused(held)
}

// signature is the member auth of a request to path (SPEC §6.5).
func (c *Client) signature(path string, r jsonrpc.Request) jsontext.Value {
	now := time.Now()
	at := fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond())
	return jsontext.Value(`{"timestamp":` + at + `,"signature":"` + c.keys.now().key.Sign(auth.RequestText(at, path, r)) + `"}`)
}

// mustSign reports whether the server refused a request because it was not
// signed. Then those to come are; the refused one may be sent again, because
// nothing of it was done. The response is closed then.
func (c *Client) mustSign(response *http.Response) bool {
	if response.StatusCode != http.StatusUnauthorized || c.keys.now().key.IsZero() {
		return false
	}
	c.signs.Store(true)
	_ = response.Body.Close()
	return true
}
