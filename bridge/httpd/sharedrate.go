package httpd

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/protocol/ratelimit"
)

// tellEvery is how often the other machines are told what keys have asked here.
const tellEvery = 100 * time.Millisecond

// Others are the other machines of a cluster, which are told what keys have asked, and tell that. It is safe for concurrent use.
type Others interface {
	// Tell tells them something, which may be lost.
	Tell(text []byte) error
	// Hear has l hear what they tell, one thing after the other, until end is called.
	Hear(l Listener) (end func(), err error)
}

// Listener hears what another machine tells.
type Listener interface{ Heard(text []byte) }

// ShareRates counts the requests of each key together with the other machines, until ctx ends. What one lets through the others know a moment later: until
// then each may let through as much as one. All that was too much a key waits for.
func ShareRates(ctx context.Context, s *Server, others Others) error {
	end, err := others.Hear(told{s})
	if err != nil {
		return fmt.Errorf("count requests with other machines: %w", err)
	}
	defer end()
	for ratelimit.Sleep(ctx, tellEvery) == nil {
		used := s.access.Load().rate.Used()
		if used == nil {
			continue
		}
		text, err := json.Marshal(used)
		if err == nil {
			err = others.Tell(text)
		}
		if err != nil {
			s.log.Debug("other machines are not told what keys have asked", zap.Error(err))
		}
	}
	return nil
}

// told counts what other machines tell.
type told struct{ s *Server }

// Heard implements [Listener].
func (t told) Heard(text []byte) {
	var used map[string]int
	if err := json.Unmarshal(text, &used); err != nil {
		t.s.log.Warn("a machine tells what none tells", zap.Int("bytes", len(text)), zap.Error(err))
		return
	}
	rate := t.s.access.Load().rate
	for key, n := range used {
		rate.Charge(key, n)
	}
}
