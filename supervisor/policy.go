package supervisor

import (
	"cmp"
	"time"
)

// Policy decides on restarts. A zero field means its default of SPEC §5.4.
type Policy struct {
	// Initial is the delay after a first crash; 0 means 100 ms. It doubles with
	// each further one, until it is Max.
	Initial time.Duration
	// Max bounds the delay; 0 means 30 s.
	Max time.Duration
	// Limit is how many crashes within Window are forgiven; one more and the
	// agent has failed. 0 means 5, negative means none.
	Limit int
	// Window is what Limit counts in; 0 means 10 s.
	Window time.Duration
	// Calm is the time without a crash that makes good one failure; 0 means
	// 60 s.
	Calm time.Duration
}

// crashMemory is how many crashes are remembered at most: enough for any delay
// to have grown to its bound.
const crashMemory = 64

func (p Policy) orDefault() Policy {
	p.Initial = cmp.Or(p.Initial, 100*time.Millisecond)
	p.Max = cmp.Or(p.Max, 30*time.Second)
	p.Limit = max(cmp.Or(p.Limit, 5), 0)
	p.Window = cmp.Or(p.Window, 10*time.Second)
	p.Calm = cmp.Or(p.Calm, 60*time.Second)
	return p
}

// Next says what follows the last of crashes, which are in order of time and
// end with the present one: the delay before the restart, or again false if
// there were too many. The delay is Initial, doubled for each failure before
// this one; a crash counts as one failure, and each Calm without a crash takes
// one away. spread in [0,1) places the delay within a fifth below
// and above its mean, so that agents that died together do not return together.
func (p Policy) Next(crashes []time.Time, now time.Time, spread float64) (delay time.Duration, again bool) {
	p = p.orDefault()
	most := 1 // failures that make the longest delay
	for d := p.Initial; d < p.Max; d *= 2 {
		most++
	}
	recent, failures := 0, 0
	for i, crash := range crashes {
		if now.Sub(crash) < p.Window {
			recent++
		}
		if i > 0 {
			failures = max(0, failures-int(crash.Sub(crashes[i-1])/p.Calm))
		}
		failures = min(failures+1, most)
	}
	if recent > p.Limit {
		return 0, false
	}
	delay = p.Initial << (failures - 1)
	delay = time.Duration(float64(min(delay, p.Max)) * (0.8 + 0.4*spread))
	return min(delay, p.Max), true
}
