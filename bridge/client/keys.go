package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"nexus.internal/bridge/auth"
)

// identity is a key with the connections to servers that have proved to have it. A key
// has connections of its own: whoever proved another one, which was replaced or
// revoked since, may be a stranger. It does not change.
type identity struct {
	key  auth.Key // zero for none
	http *http.Client
}

func newIdentity(key auth.Key) *identity {
	t := transport()
	t.DialContext = (&prover{key: key, dialer: net.Dialer{Timeout: dialTimeout}}).dial
	return &identity{key: key, http: &http.Client{
		Transport: t,
		// The key must not follow a redirect; our servers send none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// keys is the key of a client. It is safe for concurrent use.
type keys struct {
	lookup *auth.Lookup // nil where the key was given

	mu   sync.Mutex // guards held
	held *identity
}

func newKeys(key auth.Key, lookup *auth.Lookup) (*keys, error) {
	if !key.IsZero() || lookup == nil {
		return &keys{held: newIdentity(key)}, nil
	}
	found, source, err := auth.Discover(*lookup)
	if errors.Is(err, auth.ErrNoKey) {
		return nil, fmt.Errorf("%w; if no server runs, start one with nexus serve", err)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API key (%s): %w", cmp.Or(source, "nowhere"), err)
	}
	return &keys{lookup: lookup, held: newIdentity(found)}, nil
}

// now is the key to send, and how.
func (k *keys) now() *identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held
}

// refused looks for a key again, since the server does not have the one that was
// tried, and reports whether there is another now.
func (k *keys) refused(tried auth.Key) bool {
	if k.lookup == nil {
		return false
	}
	found, _, err := auth.Discover(*k.lookup)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && !k.held.key.Matches(found.Reveal()) {
		k.held.http.CloseIdleConnections() // also those that are busy, once they are idle
		k.held = newIdentity(found)
	}
	return !k.held.key.Matches(tried.Reveal())
}
