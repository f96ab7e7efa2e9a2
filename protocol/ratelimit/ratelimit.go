// Package ratelimit bounds how much happens in a time, by token buckets.
//
//	var b ratelimit.Bucket
//	rate := ratelimit.PerMinute(60)
//	if wait := b.Wait(now, rate, 1); wait == 0 {
//		b.Take(now, rate, 1)
//	}
//
// The rate is given with each call, so that it may change. Nothing here is safe for
// concurrent use, and nothing but [Sleep] looks at the clock.
package ratelimit

import (
	"context"
	"time"
)

// Rate is how fast a bucket fills.
type Rate struct {
	PerSecond float64 // 0 or less is no limit
	Burst     float64 // what a full bucket holds
}

// PerMinute is a rate whose burst is a minute's worth; 0 or less is no limit.
func PerMinute[N int | uint64](n N) Rate { return Rate{float64(n) / 60, float64(n)} }

// Bucket is a token bucket that may be overdrawn. The zero value is full.
type Bucket struct {
	missing float64 // from full
	at      time.Time
}

// refill brings the bucket to now.
func (b *Bucket) refill(now time.Time, r Rate) {
	if elapsed := now.Sub(b.at); elapsed > 0 {
		b.missing = max(0, b.missing-elapsed.Seconds()*r.PerSecond)
		b.at = now
	}
	if r.PerSecond <= 0 {
		b.missing = 0
	}
}

// Take takes n, whether the bucket has as much or not.
func (b *Bucket) Take(now time.Time, r Rate, n float64) {
	b.refill(now, r)
	if r.PerSecond > 0 {
		b.missing += n
	}
}

// Wait returns how long it takes until the bucket has n, 0 if it does. It takes nothing.
// For more than the burst it never has as much.
func (b *Bucket) Wait(now time.Time, r Rate, n float64) time.Duration {
	b.refill(now, r)
	over := b.missing + n - r.Burst
	if r.PerSecond <= 0 || over <= 1e-6 {
		return 0
	}
	return time.Duration(min(over/r.PerSecond, 6e7) * float64(time.Second))
}

// IsFull reports whether the bucket is as one that was never used.
func (b *Bucket) IsFull(now time.Time, r Rate) bool { return b.Wait(now, r, r.Burst) == 0 }

// Sleep waits for d, unless ctx ends: then it returns the cause. It is safe for concurrent use.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
