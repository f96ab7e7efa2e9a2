package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"nexus.internal/bridge/client"
)

const (
	// haltAfter is how long this process does nothing before that is a halt, and beatEvery is how often it does
	// something while it watches.
	haltAfter = time.Second
	beatEvery = haltAfter / 4
	// lastEventPatience bounds the wait for the number of an agent's last event.
	lastEventPatience = 2 * time.Second
)

// Halts count how often this process stood still, as after Ctrl-Z. The zero value counts none before Watch. They are
// safe for concurrent use.
type Halts struct {
	mu    sync.Mutex // guards the rest
	beat  time.Time  // when it did something last; zero before Watch
	count int
}

// Watch notices halts until ctx ends.
func (h *Halts) Watch(ctx context.Context) {
	h.mu.Lock()
	h.beat = time.Now()
	h.mu.Unlock()
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	for {
		select {
		case <-beats.C:
			h.Count()
		case <-ctx.Done():
			return
		}
	}
}

// Count is how many halts there were by now, one that has just ended included.
func (h *Halts) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beat.IsZero() {
		return 0
	}
	now := time.Now()
	if now.Sub(h.beat) > haltAfter {
		h.count++
	}
	h.beat = now
	return h.count
}

// Moments say when the events of an agent happened: as they are read, but for those of before we came, and those
// that waited while this process stood still (events bear no time). They belong to one goroutine.
type Moments struct {
	C     *client.Client
	Agent string
	Halts *Halts
	Past  uint64 // the number of the last event that is read late
	count int    // of the halts that Past stands for
}

// Of is when an event that was just read happened; zero if nobody knows.
func (m *Moments) Of(ctx context.Context, event client.Event) time.Time {
	if count := m.Halts.Count(); count != m.count {
		m.count = count
		limited, cancel := context.WithTimeout(ctx, lastEventPatience)
		defer cancel()
		last, _, err := LastEvent(limited, m.C, m.Agent)
		if err != nil {
			return time.Time{}
		}
		m.Past = max(m.Past, last)
	}
	if n, err := numberOf(event); err == nil && n <= m.Past {
		return time.Time{}
	}
	return time.Now()
}

// LastEvent is the number of the last event of an agent that there is, and the id that it has at this server but for
// its number. An agent without a process gets one.
func LastEvent(ctx context.Context, c *client.Client, agent string) (last uint64, id string, err error) {
	for event, err := range c.FollowAll(ctx, "", client.Filter{Agents: []string{agent}}) {
		if err != nil {
			return 0, "", err
		}
		if !strings.HasPrefix(event.ID[strings.LastIndex(event.ID, ",")+1:], agent+":") { // it does not run
			last, err = c.LastEvent(ctx, agent)
			return last, agent + ":", err
		}
		last, err = numberOf(event) // the first one is at the end of what there is
		return last, event.ID[:strings.LastIndex(event.ID, ":")+1], err
	}
	return 0, "", ctx.Err()
}

// numberOf is an event's number, of a stream of one agent: its id is NAME:NUMBER.
func numberOf(event client.Event) (uint64, error) {
	n, err := strconv.ParseUint(event.ID[strings.LastIndex(event.ID, ":")+1:], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the position %q of the events: %w", event.ID, err)
	}
	return n, nil
}
