package limit

import (
	"math"
	"sync"
	"time"

	"nexus.internal/protocol/ratelimit"
)

// maxNames is how many names a Rate keeps before it forgets those that have
// asked for nothing in the last minute.
const maxNames = 1024

// Rate lets each name do so much in a minute: a bucket for each, full at first.
type Rate struct {
	rate ratelimit.Rate

	mu      sync.Mutex // guards buckets
	buckets map[string]*ratelimit.Bucket
}

// NewRate returns a Rate; 0 or less is no limit.
func NewRate(perMinute int) *Rate {
	return &Rate{rate: ratelimit.PerMinute(perMinute), buckets: map[string]*ratelimit.Bucket{}}
}

// Never is how long one would wait for more than a minute's worth.
const Never time.Duration = math.MaxInt64

// Take takes n at once and returns 0, or takes nothing and returns after how long
// it may be asked again, or Never.
func (r *Rate) Take(name string, n int) (wait time.Duration) {
	if r.rate.PerSecond > 0 && float64(n) > r.rate.Burst {
		return Never
	}
	return r.ask(name, float64(n), float64(n))
}

// Wait returns how long it is until one may be taken, 0 if it may be at once. It takes
// nothing.
func (r *Rate) Wait(name string) time.Duration { return r.ask(name, 1, 0) }

// ask takes that much if as much as is needed is there, and else returns when it will be.
func (r *Rate) ask(name string, need, take float64) time.Duration {
	if r.rate.PerSecond <= 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	b := r.buckets[name]
	if b == nil {
		if len(r.buckets) >= maxNames {
			for old, b := range r.buckets {
				if b.IsFull(now, r.rate) { // as a new one would be
					delete(r.buckets, old)
				}
			}
		}
		b = &ratelimit.Bucket{}
		r.buckets[name] = b
	}
	wait := b.Wait(now, r.rate, need)
	if wait == 0 {
		b.Take(now, r.rate, take)
	}
	return wait
}
