package replay

import (
	"context"
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

// Agreed has the machines of a cluster agree on what was used. It is safe for concurrent use.
type Agreed interface {
	// Use uses texts, each once in the whole cluster; a text may be forgotten ten minutes later. The error is ErrUsed, or says why the machines do not agree.
	Use(ctx context.Context, texts []string) error
}

// Cache remembers what may be used once. The zero value is ready, and remembers as
// long as the process lives; Open gives one that remembers longer.
type Cache struct {
	path   string // of the file; "" for none
	agreed Agreed // nil for a server alone

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
// another error if they last and cannot be written, or if the machines of a cluster do not agree on them: then it is not known
// whether they are used. After until, a text is forgotten:
// the caller must not accept it any more. Texts that last could be used with a later
// server too; they have no line break.
func (c *Cache) Use(ctx context.Context, texts []string, lasting bool, now, until time.Time) error {
	if len(texts) == 0 {
		return nil
	}
	if err := c.use(texts, lasting, now, until); err != nil || c.agreed == nil {
		return err
	}
	err := c.agreed.Use(ctx, texts)
	if err != nil && !errors.Is(err, ErrUsed) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, text := range texts { // they may be tried again: the machines know whether they are used
			delete(c.used, text)
		}
	}
	return err
}

// use is Use for this machine.
func (c *Cache) use(texts []string, lasting bool, now, until time.Time) error {
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
