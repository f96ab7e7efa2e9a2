package broker

import "time"

// bucket meters a rate. It may be overdrawn, because what a request costs is
// known when it has ended. The zero value is full.
type bucket struct {
	missing float64 // from full
	at      time.Time
}

// refill brings the bucket to now; perMinute is its size, too.
func (b *bucket) refill(now time.Time, perMinute int) {
	if perMinute <= 0 {
		b.missing = 0
	} else if elapsed := now.Sub(b.at); elapsed > 0 {
		b.missing = max(0, b.missing-elapsed.Minutes()*float64(perMinute))
	}
	b.at = now
}

func (b *bucket) take(now time.Time, perMinute int, n uint64) {
	b.refill(now, perMinute)
	if perMinute > 0 {
		b.missing += float64(n)
	}
}

// wait is how long it takes until there is one to take; 0 if there is.
func (b *bucket) wait(now time.Time, perMinute int) time.Duration {
	b.refill(now, perMinute)
	over := b.missing + 1 - float64(perMinute)
	if perMinute <= 0 || over <= 1e-6 {
		return 0
	}
	return time.Duration(min(over/float64(perMinute), 1e6) * float64(time.Minute))
}

func (b *bucket) full(now time.Time, perMinute int) bool {
	b.refill(now, perMinute)
	return b.missing == 0
}
