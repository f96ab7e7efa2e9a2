package supervisor_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"nexus.internal/supervisor"
)

func TestPolicy(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(seconds ...float64) (crashes []time.Time) {
		for _, s := range seconds {
			crashes = append(crashes, now.Add(-time.Duration(s*float64(time.Second))))
		}
		return append(crashes, now)
	}
	long := func(n int, every float64) (seconds []float64) {
		for i := n; i > 0; i-- {
			seconds = append(seconds, float64(i)*every)
		}
		return seconds
	}
	for _, c := range []struct {
		name    string
		policy  supervisor.Policy
		crashes []time.Time
		delay   time.Duration
		again   bool
	}{
		{"first crash", supervisor.Policy{}, ago(), 100 * time.Millisecond, true},
		{"second", supervisor.Policy{}, ago(1), 200 * time.Millisecond, true},
		{"fifth in a row", supervisor.Policy{}, ago(4, 3, 2, 1), 1600 * time.Millisecond, true},
		{"sixth within 10 s", supervisor.Policy{}, ago(9.9, 4, 3, 2, 1), 0, false},
		{"the first of six is 10 s old", supervisor.Policy{}, ago(10, 4, 3, 2, 1), 3200 * time.Millisecond, true},
		{"the delay is bounded", supervisor.Policy{}, ago(long(20, 40)...), 30 * time.Second, true},
		{"calm begins anew", supervisor.Policy{}, ago(64, 63, 62, 61, 60), 100 * time.Millisecond, true},
		{"just not calm", supervisor.Policy{}, ago(59.9), 200 * time.Millisecond, true},
		{"no crash forgiven", supervisor.Policy{Limit: -1}, ago(), 0, false},
		{"own numbers", supervisor.Policy{Initial: time.Second, Max: 3 * time.Second, Limit: 9}, ago(3, 2, 1), 3 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			delay, again := c.policy.Next(c.crashes, now, 0.5)
			if delay != c.delay || again != c.again {
				t.Errorf("Next = %v, %v, want %v, %v", delay, again, c.delay, c.again)
			}
		})
	}
}

// Whatever the history: a delay stays within a fifth of its mean, above zero,
// and never above the bound.
func TestPolicyBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		crashes := []time.Time{now}
		for _, gap := range rapid.SliceOfN(rapid.Int64Range(0, int64(2*time.Minute)), 0, 63).Draw(t, "gaps") {
			crashes = append([]time.Time{crashes[0].Add(-time.Duration(gap))}, crashes...)
		}
		mean, again := supervisor.Policy{}.Next(crashes, now, 0.5)
		if !again {
			return
		}
		delay, _ := supervisor.Policy{}.Next(crashes, now, rapid.Float64Range(0, 0.999).Draw(t, "spread"))
		if delay > 30*time.Second || delay < mean*79/100 || delay > mean*121/100 {
			t.Fatalf("delay %v, mean %v", delay, mean)
		}
	})
}
