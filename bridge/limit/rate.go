package limit

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxNames is how many names a Rate keeps before it forgets those that have
// asked for nothing in the last minute.
const maxNames = 1024

// Rate lets each name do so much in a minute: a bucket for each, full at first.
type Rate struct {
	perMinute int

	mu      sync.Mutex // guards buckets
	buckets map[string]*rate.Limiter
}

// NewRate returns a Rate; 0 or less is no limit.
func NewRate(perMinute int) *Rate {
	return &Rate{perMinute: perMinute, buckets: map[string]*rate.Limiter{}}
}

// Never is how long one would wait for more than a minute's worth.
const Never time.Duration = math.MaxInt64

// Take takes n at once and returns 0, or takes nothing and returns after how long
// it may be asked again, or Never.
func (r *Rate) Take(name string, n int) (wait time.Duration) {
	if r.perMinute <= 0 {
		return 0
	}
	now := time.Now()
	reserved := r.bucket(name, now).ReserveN(now, n)
	if !reserved.OK() {
		return Never
	}
	if wait = reserved.DelayFrom(now); wait > 0 {
		reserved.CancelAt(now)
	}
	return wait
}

// Wait returns how long it is until one may be taken, 0 if it may be at once. It takes
// nothing.
func (r *Rate) Wait(name string) time.Duration {
	if r.perMinute <= 0 {
		return 0
	}
	now := time.Now()
	reserved := r.bucket(name, now).ReserveN(now, 1)
	defer reserved.CancelAt(now)
	return reserved.DelayFrom(now)
}

func (r *Rate) bucket(name string, now time.Time) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[name]
	if b == nil {
		if len(r.buckets) >= maxNames {
			for old, b := range r.buckets {
				if b.TokensAt(now) >= float64(r.perMinute) { // as a new one would be
					delete(r.buckets, old)
				}
			}
		}
		b = rate.NewLimiter(rate.Limit(r.perMinute)/60, r.perMinute)
		r.buckets[name] = b
	}
	return b
}
