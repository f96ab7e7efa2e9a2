package replay

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"
)

// MaxUsed is how many signatures are remembered (SPEC §7).
const MaxUsed = 65536

// What Use refuses.
var (
	ErrUsed = errors.New("it was used before")
	// ErrFull says that there is no room to remember it: it is not used.
	ErrFull = errors.New("too many signed requests in a short time")
)

// Cache remembers what may be used once. The zero value is ready, and remembers as
// long as the process lives; Open gives one that remembers longer.
type Cache struct {
	path string // of the file; "" for none

	mu    sync.Mutex     // guards what follows
	used  map[string]use // by what was used
	swept time.Time      // when those that are over were removed last
	file  *os.File       // what is used is appended to it
	lines int            // in the file
}

// use says how long what was used is remembered, and whether in the file too.
type use struct {
	until   time.Time
	lasting bool
}

// Use uses all of the texts, or none: with ErrUsed if one of them was used before
// or stands twice, with ErrFull if they cannot be remembered until then, and with
// another error if they last and cannot be written. After until, a text is forgotten:
// the caller must not accept it any more. Texts that last could be used with a later
// server too; they have no line break.
func (c *Cache) Use(texts []string, lasting bool, now, until time.Time) error {
	if len(texts) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fresh(texts) {
		return ErrUsed
	}
	if len(c.used)+len(texts) > MaxUsed || now.Sub(c.swept) > time.Minute {
		for text, u := range c.used {
			if u.until.Before(now) {
				delete(c.used, text)
			}
		}
		c.swept = now
	}
	if len(c.used)+len(texts) > MaxUsed {
		return ErrFull
	}
	if lasting {
		if err := c.keep(texts, until); err != nil {
			return err
		}
	}
	for _, text := range texts {
		c.remember(text, use{until: until, lasting: lasting})
	}
	return nil
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
		if _, used := c.used[text]; used || slices.Contains(texts[:i], text) {
			return false
		}
	}
	return true
}

func (c *Cache) remember(text string, u use) {
	if c.used == nil {
		c.used = map[string]use{}
	}
	c.used[text] = u
}
