package bridge

import (
	"fmt"
	"sync"

	"nexus.internal/bridge/auth"
)

// Bounds of the streams of events that are open (SPEC §7). The last ones are kept back
// for full keys.
const (
	maxStreams       = 256
	maxScopedStreams = 192 // of all scoped keys
	maxKeyStreams    = 64  // of one scoped key
)

// seats counts the streams of events. The zero value is ready; it is safe for
// concurrent use.
type seats struct {
	mu     sync.Mutex // guards what follows
	all    int
	scoped int
	of     map[string]int // by the id of a scoped key
}

// take takes one for a key, or says why there is none. If it is "", leave must follow.
func (s *seats) take(g auth.Grant) (full string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all >= maxStreams:
		return fmt.Sprintf("%d streams of events are open", maxStreams)
	case g.Scope == auth.ScopeFull:
	case s.scoped >= maxScopedStreams:
		return fmt.Sprintf("%d streams of events of keys that are not full are open", maxScopedStreams)
	case s.of[g.ID] >= maxKeyStreams:
		return fmt.Sprintf("%d streams of events of this key are open", maxKeyStreams)
	default:
		if s.of == nil {
			s.of = map[string]int{}
		}
		s.scoped++
		s.of[g.ID]++
	}
	s.all++
	return ""
}

func (s *seats) leave(g auth.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if g.Scope == auth.ScopeFull {
		return
	}
	s.scoped--
	if s.of[g.ID]--; s.of[g.ID] == 0 {
		delete(s.of, g.ID)
	}
}
