package proc

import "time"

// AgeKeeper makes the keeper old enough to be followed by another.
func AgeKeeper(g *Guard) {
	g.keeper.mu.Lock()
	defer g.keeper.mu.Unlock()
	g.keeper.began = time.Now().Add(-leastLife)
}

// Bucket is what keeps a rate.
type Bucket struct{ b bucket }

// NewBucket makes a full one.
func NewBucket(rate int64, now time.Time) *Bucket { return &Bucket{newBucket(rate, now)} }

// Take takes bytes from it.
func (b *Bucket) Take(n int, now time.Time) bool { return b.b.take(n, now) }
