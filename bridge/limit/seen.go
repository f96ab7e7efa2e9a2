package limit

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"
)

// MaxSeen is how many signatures are remembered (SPEC §7).
const MaxSeen = 65536

// What Use refuses.
var (
	ErrSeen = errors.New("it was used before")
	// ErrFull says that there is no room to remember it: it is not used.
	ErrFull = errors.New("too many signed requests in a short time")
)

// Seen remembers what may be used once. The zero value is ready, and remembers as
// long as the process lives; OpenSeen gives one that remembers longer.
type Seen struct {
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

// Use uses all of the texts, or none: with ErrSeen if one of them was used before
// or stands twice, with ErrFull if they cannot be remembered until then, and with
// another error if they last and cannot be written. After until, a text is forgotten:
// the caller must not accept it any more. Texts that last could be used with a later
// server too; they have no line break.
func (s *Seen) Use(texts []string, lasting bool, now, until time.Time) error {
	if len(texts) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh(texts) {
		return ErrSeen
	}
	if len(s.used)+len(texts) > MaxSeen || now.Sub(s.swept) > time.Minute {
		for text, u := range s.used {
			if u.until.Before(now) {
				delete(s.used, text)
			}
		}
		s.swept = now
	}
	if len(s.used)+len(texts) > MaxSeen {
		return ErrFull
	}
	if lasting {
		if err := s.keep(texts, until); err != nil {
			return err
		}
	}
	for _, text := range texts {
		s.remember(text, use{until: until, lasting: lasting})
	}
	return nil
}

// Fresh reports whether Use would not fail with ErrSeen. It uses nothing.
func (s *Seen) Fresh(texts []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh(texts)
}

// fresh is Fresh; mu is held.
func (s *Seen) fresh(texts []string) bool {
	for i, text := range texts {
		if _, used := s.used[text]; used || slices.Contains(texts[:i], text) {
			return false
		}
	}
	return true
}

func (s *Seen) remember(text string, u use) {
	if s.used == nil {
		s.used = map[string]use{}
	}
	s.used[text] = u
}
