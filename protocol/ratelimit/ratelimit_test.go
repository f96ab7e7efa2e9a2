package ratelimit_test

import (
	"testing"
	"time"

	"nexus.internal/protocol/ratelimit"
)

// What is taken comes back at the rate, what was overdrawn too, and a long silence gives no
// more than the burst.
func TestBucket(t *testing.T) {
	var b ratelimit.Bucket
	rate := ratelimit.PerMinute(60)
	now := time.Unix(1_000_000, 0)
	for _, step := range []struct {
		name       string
		later      time.Duration
		take, want float64
		wait       time.Duration
	}{
		{"full", 0, 0, 60, 0},
		{"more than there ever is", 0, 0, 61, time.Second},
		{"all is taken", 0, 60, 1, time.Second},
		{"overdrawn", 0, 30, 1, 31 * time.Second},
		{"on the way", 30 * time.Second, 0, 1, time.Second},
		{"the clock goes back", -time.Hour, 0, 1, time.Second},
		{"there again", time.Hour + time.Second, 0, 1, 0},
		{"an hour fills it once", time.Hour, 60, 1, time.Second},
		{"nothing is taken", 0, 0, 0, 0},
	} {
		now = now.Add(step.later)
		b.Take(now, rate, step.take)
		if wait := b.Wait(now, rate, step.want); wait != step.wait {
			t.Errorf("%s: wait %s, want %s", step.name, wait, step.wait)
		}
	}
	if b.IsFull(now, rate) || !b.IsFull(now.Add(time.Minute), rate) {
		t.Error("a bucket is full before its time, or not then")
	}
	b.Take(now, ratelimit.Rate{}, 1e9)
	if wait := b.Wait(now, ratelimit.Rate{}, 1e9); wait != 0 {
		t.Errorf("without a limit: wait %s", wait)
	}
	if b.Take(now, rate, 1e18); b.Wait(now, ratelimit.Rate{PerSecond: 1e-9, Burst: 1}, 1) <= 0 {
		t.Error("a very long wait is none")
	}
}
