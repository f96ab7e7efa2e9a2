package limit

import (
	"errors"
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

// Seen remembers what may be used once. The zero value is ready.
type Seen struct {
	mu    sync.Mutex           // guards what follows
	until map[string]time.Time // by what was used
	swept time.Time            // when those that are over were removed last
}

// Use uses all of the texts, or none: with ErrSeen if one of them was used before
// or stands twice, with ErrFull if they cannot be remembered until then. After
// until, a text is forgotten: the caller must not accept it any more.
func (s *Seen) Use(texts []string, now, until time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, text := range texts {
		if _, used := s.until[text]; used || slices.Contains(texts[:i], text) {
			return ErrSeen
		}
	}
	if len(s.until)+len(texts) > MaxSeen || now.Sub(s.swept) > time.Minute {
		for text, until := range s.until {
			if until.Before(now) {
				delete(s.until, text)
			}
		}
		s.swept = now
	}
	if len(s.until)+len(texts) > MaxSeen {
		return ErrFull
	}
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	for _, text := range texts {
		s.until[text] = until
	}
	return nil
}
