package client

import (
	"cmp"
	"fmt"
	"sync"

	"nexus.internal/bridge/auth"
)

// keys is the key of a client. It is safe for concurrent use.
type keys struct {
	lookup *auth.Lookup // nil where the key was given

	mu  sync.Mutex // guards key
	key auth.Key
}

func newKeys(key auth.Key, lookup *auth.Lookup) (*keys, error) {
	k := &keys{key: key}
	if !key.IsZero() || lookup == nil {
		return k, nil
	}
	k.lookup = lookup
	found, source, err := auth.Discover(*lookup)
	if err != nil {
		return nil, fmt.Errorf("find the API key (%s): %w", cmp.Or(source, "nowhere"), err)
	}
	k.key = found
	return k, nil
}

// now is the key to send; zero for none.
func (k *keys) now() auth.Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.key
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
	if err == nil {
		k.key = found
	}
	return !k.key.Matches(tried.Reveal())
}
