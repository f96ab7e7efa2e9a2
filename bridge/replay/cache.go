package replay

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"
)

// How many signatures are remembered (SPEC §7). Keys for less take no room of the full keys, and none of them takes that of all others.
const (
	MaxUsed      = 65536       // of the full keys; and as many of all keys for less together
	MaxUsedOfKey = MaxUsed / 4 // of one key for less
)

// AgreedFor is how long what a key for less has used counts where machines agree on it: they keep it as long.
const AgreedFor = 11 * time.Minute

// sweepEvery is how often what is over is looked for while there is no room: each refusal would look at all.
const sweepEvery = time.Second

// What Use refuses.
var (
	ErrUsed = errors.New("it was used before")
	// ErrFull says that there is no room to remember it: it is not used.
	ErrFull = errors.New("too many signed requests in a short time")
)

// Agreed has the machines of a cluster agree on what was used. It is safe for concurrent use.
type Agreed interface {
	// Use uses texts, each once in the whole cluster; a text may be forgotten ten minutes later, and is after [AgreedFor]. The error is ErrUsed, or says why the machines do not agree.
	Use(ctx context.Context, texts []string) error
}

// Cache remembers what may be used once. The zero value is ready, and remembers as
// long as the process lives; Open gives one that remembers longer.
type Cache struct {
	path   string // of the file; "" for none
	agreed Agreed // nil for a server alone

	mu    sync.Mutex     // guards what follows
	used  map[string]use // by what was used
	held  map[string]int // how many of used are of a key
	swept time.Time      // when those that are over were removed last
	file  *os.File       // what is used is appended to it
	lines int            // in the file
}

// The places of keys in held that are not ids.
const (
	full    = ""                  // all full keys
	earlier = "an earlier server" // all keys of what it has used: the file does not say whose it was
)

// use says how long what was used is remembered.
type use struct {
	until  time.Time
	key    string // in held; all but those of full are in the file, too
	unsure bool   // it is counted, but may be used: the machines know whether it was
}

// Use uses all of the texts, or none: with ErrUsed if one of them was used before
// or stands twice, with ErrFull if they cannot be remembered until then, and with
// another error if they cannot be written, or if the machines of a cluster do not agree on them: then it is not known
// whether they are used. After until, a text is forgotten:
// the caller must not accept it any more. key is the id of a key for less, whose texts
// could be used with a later server too and so are in the file, or "" for a full key. The texts have no line break.
func (c *Cache) Use(ctx context.Context, texts []string, key string, now, until time.Time) error {
	if len(texts) == 0 {
		return nil
	}
	if end := now.Add(AgreedFor); c.agreed != nil && key != full && until.Before(end) {
		until = end
	}
	if err := c.use(texts, key, now, until); err != nil || c.agreed == nil {
		return err
	}
	err := c.agreed.Use(ctx, texts)
	if err != nil && !errors.Is(err, ErrUsed) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, text := range texts { // they may be tried again
			u := c.used[text]
			u.unsure = true
			c.remember(text, u)
		}
	}
	return err
}

// use is Use for this machine.
func (c *Cache) use(texts []string, key string, now, until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fresh(texts) {
		return ErrUsed
	}
	more := 0
	for _, text := range texts {
		if _, unsure := c.used[text]; !unsure {
			more++
		}
	}
	if wait := now.Sub(c.swept); wait > time.Minute || wait > sweepEvery && !c.fits(key, more) {
		c.sweep(now)
	}
	if !c.fits(key, more) {
		return ErrFull
	}
	if key != full {
		if err := c.keep(texts, until); err != nil {
			return err
		}
	}
	for _, text := range texts {
		c.remember(text, use{until: until, key: key})
	}
	return nil
}

// fits reports whether there is room for so many more of a key. mu is held.
func (c *Cache) fits(key string, more int) bool {
	ofFull := c.held[full]
	if key == full {
		return ofFull+more <= MaxUsed
	}
	return len(c.used)-ofFull+more <= MaxUsed && c.held[key]+more <= MaxUsedOfKey
}

// sweep forgets what is over. mu is held.
func (c *Cache) sweep(now time.Time) {
	for text, u := range c.used {
		if u.until.Before(now) {
			c.forget(text)
		}
	}
	c.swept = now
}

// Fresh reports whether Use would not fail with ErrUsed. It uses nothing.
func (c *Cache) Fresh(texts []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fresh(texts)
}

// fresh is Fresh; mu is held.
func (c *Cache) fresh(texts []string) bool {
	for i, text := range texts {
		if u, known := c.used[text]; known && !u.unsure || slices.Contains(texts[:i], text) {
			return false
		}
	}
	return true
}

// remember counts a text, and not twice. mu is held, or nobody else has c.
func (c *Cache) remember(text string, u use) {
	if c.used == nil {
		c.used, c.held = map[string]use{}, map[string]int{}
	}
	c.forget(text)
	c.used[text] = u
	c.held[u.key]++
}

// forget forgets a text, if it is there. mu is held.
func (c *Cache) forget(text string) {
	u, known := c.used[text]
	if !known {
		return
	}
	delete(c.used, text)
	if c.held[u.key]--; c.held[u.key] == 0 {
		delete(c.held, u.key)
	}
}
