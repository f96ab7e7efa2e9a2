package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

// Bounds of one-time codes (SPEC §6.11).
const (
	CodeLife = time.Minute // how long a code is good
	MaxCodes = 16          // good at once; another one ends the oldest
)

// codePrefix begins every code, so that it is known for a secret where it stands.
const codePrefix = "nxc_"

// Codes are one-time codes, each of which is good for a key once. The zero value has
// none. Only hashes of codes are held. All methods are safe for concurrent use.
type Codes struct {
	mu   sync.Mutex
	made []code // the oldest first
}

type code struct {
	hash    [sha256.Size]byte
	key     string // id of the key that asked for it
	expires time.Time
	valid   context.Context //nolint:containedctx // the key's life, as of Keyring.Check
}

// Make returns a new code, of 128 random bits or more, for the key with that id. It is good for
// CodeLife, or until valid ends, which is the life of the key.
func (c *Codes) Make(key string, valid context.Context) string {
	text := codePrefix + rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, code{sha256.Sum256([]byte(text)), key, time.Now().Add(CodeLife), valid})
	if len(c.made) > MaxCodes {
		c.made = slices.Delete(c.made, 0, len(c.made)-MaxCodes)
	}
	return text
}

// Use ends a code and returns the id of the key that asked for it; "" if the code was not
// good. How long it takes says nothing about other codes: hashes are compared.
func (c *Codes) Use(text string) (key string) {
	hash := sha256.Sum256([]byte(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.made, func(one code) bool { return one.hash == hash })
	if i < 0 {
		return ""
	}
	one := c.made[i]
	c.made = slices.Delete(c.made, i, i+1)
	if !time.Now().Before(one.expires) || one.valid.Err() != nil {
		return ""
	}
	return one.key
}
