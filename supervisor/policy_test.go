package supervisor_test

import (
	"slices"
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
		{"a calm minute halves it", supervisor.Policy{}, ago(64, 63, 62, 61, 60), 1600 * time.Millisecond, true},
		{"just not calm", supervisor.Policy{}, ago(63.9, 62.9, 61.9, 60.9, 59.9), 3200 * time.Millisecond, true},
		{"four calm minutes", supervisor.Policy{}, ago(244, 243, 242, 241, 240), 200 * time.Millisecond, true},
		{"a calm hour begins anew", supervisor.Policy{}, ago(3604, 3603, 3602, 3601, 3600), 100 * time.Millisecond, true},
		{"calm comes between, too", supervisor.Policy{}, ago(200, 199, 198, 3, 2), 400 * time.Millisecond, true},
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

// history draws the times of up to 64 crashes, and the last one is now.
func history(t *rapid.T) (crashes []time.Time, now time.Time) {
	now = time.Unix(1_000_000, 0)
	crashes = []time.Time{now}
	for _, gap := range rapid.SliceOfN(rapid.Int64Range(0, int64(3*time.Minute)), 0, 63).Draw(t, "gaps") {
		crashes = append(crashes, crashes[len(crashes)-1].Add(-time.Duration(gap)))
	}
	slices.Reverse(crashes)
	return crashes, now
}

// Whatever the history: a delay stays within a fifth of its mean, above zero,
// and never above the bound.
func TestPolicyBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		crashes, now := history(t)
		mean, again := supervisor.Policy{}.Next(crashes, now, 0.5)
		if !again {
			return
		}
		delay, _ := supervisor.Policy{}.Next(crashes, now, rapid.Float64Range(0, 0.999).Draw(t, "spread"))
		if delay > 30*time.Second || delay < mean*79/100 || delay > mean*121/100 || mean < 100*time.Millisecond {
			t.Fatalf("delay %v, mean %v", delay, mean)
		}
	})
}

// Whatever the history: six crashes in ten seconds and no fewer are too many;
// one crash more never shortens the delay, but doubles it up to the bound; each
// calm minute halves it, down to the first.
func TestPolicyDecays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		crashes, now := history(t)
		recent := 0
		for _, crash := range crashes {
			if now.Sub(crash) < 10*time.Second {
				recent++
			}
		}
		if _, again := (supervisor.Policy{}).Next(crashes, now, 0.5); again != (recent <= 5) {
			t.Fatalf("again %v after %d crashes in 10 s", again, recent)
		}
		forgiving := supervisor.Policy{Limit: 1000}
		before, _ := forgiving.Next(crashes, now, 0.5)
		next := func(gap time.Duration) time.Duration {
			later := now.Add(gap)
			delay, again := forgiving.Next(append(slices.Clone(crashes), later), later, 0.5)
			if !again {
				t.Fatal("not again, within the limit")
			}
			return delay
		}
		first, bound := 100*time.Millisecond, 30*time.Second
		if soon := next(time.Duration(rapid.Int64Range(0, int64(time.Minute)-1).Draw(t, "soon"))); soon != min(2*before, bound) {
			t.Fatalf("delay %v, then %v", before, soon)
		}
		minutes := rapid.IntRange(1, 20).Draw(t, "calm minutes")
		calm := next(time.Duration(minutes) * time.Minute)
		want := before // at the bound, the sum of its doublings is above it
		if before == bound {
			want = 51200 * time.Millisecond
		}
		for range minutes {
			want = max(want/2, first/2)
		}
		if calm != min(2*want, bound) {
			t.Fatalf("delay %v, after %d calm minutes %v, want %v", before, minutes, calm, 2*want)
		}
	})
}
