package events

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

// streamLimit counts the streams of events that are open. The zero value is ready; it is
// safe for concurrent use.
type streamLimit struct {
	mu     sync.Mutex // guards what follows
	all    int
	scoped int
	of     map[string]int // by the id of a scoped key
}

// take counts one more stream for a key. full says which bound forbids it; if it is "",
// leave must follow.
func (l *streamLimit) take(g auth.Grant) (full string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.all >= maxStreams:
		return fmt.Sprintf("%d streams of events are open", maxStreams)
	case g.Scope == auth.ScopeFull:
	case l.scoped >= maxScopedStreams:
		return fmt.Sprintf("%d streams of events of keys that are not full are open", maxScopedStreams)
	case l.of[g.ID] >= maxKeyStreams:
		return fmt.Sprintf("%d streams of events of this key are open", maxKeyStreams)
	default:
		if l.of == nil {
			l.of = map[string]int{}
		}
		l.scoped++
		l.of[g.ID]++
	}
	l.all++
	return ""
}

func (l *streamLimit) leave(g auth.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if g.Scope == auth.ScopeFull {
		return
	}
	l.scoped--
	if l.of[g.ID]--; l.of[g.ID] == 0 {
		delete(l.of, g.ID)
	}
}
