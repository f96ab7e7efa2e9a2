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

	mu      sync.Mutex // guards what follows
	buckets map[string]*ratelimit.Bucket
	used    map[string]int // what was taken since Used was asked last; nil if nobody asks
}

// NewRate returns a Rate; 0 or less is no limit.
func NewRate(perMinute int) *Rate {
	return &Rate{rate: ratelimit.PerMinute(perMinute), buckets: map[string]*ratelimit.Bucket{}}
}

// NewShared is NewRate for several servers that count together: each is told by Charge what Used is at the others.
func NewShared(perMinute int) *Rate {
	r := NewRate(perMinute)
	r.used = map[string]int{}
	return r
}

// Used is what was taken since the last call, by name.
func (r *Rate) Used() (used map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if used = r.used; len(used) == 0 {
		return nil
	}
	r.used = map[string]int{}
	return used
}

// Charge counts what was taken at another server. It may be more than is there: then the name waits for longer.
func (r *Rate) Charge(name string, n int) {
	if r.rate.PerSecond <= 0 || n <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.bucket(name, now).Take(now, r.rate, float64(n))
}

// Never is how long one would wait for more than a minute's worth.
const Never time.Duration = math.MaxInt64

// Take takes n at once and returns 0, or takes nothing and returns after how long
// it may be asked again, or Never.
func (r *Rate) Take(name string, n int) (wait time.Duration) {
	if r.rate.PerSecond > 0 && float64(n) > r.rate.Burst {
		return Never
	}
	wait = r.ask(name, float64(n), float64(n))
	if wait == 0 && r.rate.PerSecond > 0 {
		r.count(name, n)
	}
	return wait
}

// count adds to what Used tells.
func (r *Rate) count(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used != nil {
		r.used[name] += n
	}
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
	b := r.bucket(name, now)
	wait := b.Wait(now, r.rate, need)
	if wait == 0 {
		b.Take(now, r.rate, take)
	}
	return wait
}

// bucket is that of a name. mu is held.
func (r *Rate) bucket(name string, now time.Time) *ratelimit.Bucket {
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
	return b
}
