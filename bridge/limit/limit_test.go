package limit_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/bridge/limit"
)

// What is taken at one server is missing at the other once that is told; what was too much is waited for.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := limit.NewShared(60), limit.NewShared(60)
		tell := func(from, to *limit.Rate) {
			for name, n := range from.Used() {
				to.Charge(name, n)
			}
		}
		if a.Take("k", 40) != 0 || b.Take("k", 40) != 0 {
			t.Error("each has a minute's worth before the other tells")
		}
		tell(a, b)
		tell(b, a)
		if a.Used() != nil || b.Used() != nil {
			t.Error("what was told is told again")
		}
		for _, r := range []*limit.Rate{a, b} {
			if wait := r.Take("k", 1); wait != 21*time.Second { // 80 of 60 were taken
				t.Errorf("wait %s", wait)
			}
			if r.Take("other", 60) != 0 {
				t.Error("another key waits, too")
			}
		}
		<-time.After(21 * time.Second)
		if a.Take("k", 1) != 0 {
			t.Error("it waits for longer than it was told")
		}
	})
	if r := limit.NewRate(60); r.Take("k", 1) != 0 || r.Used() != nil {
		t.Error("a server alone remembers what nobody asks for")
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limit.NewRate(60)
		if wait := r.Take("a", 60); wait != 0 {
			t.Fatalf("a minute's worth at once: wait %s", wait)
		}
		wait := r.Take("a", 2)
		if wait.Round(time.Millisecond) != 2*time.Second {
			t.Errorf("two more: wait %s, want 2s", wait)
		}
		if wait := r.Take("b", 1); wait != 0 {
			t.Errorf("another name: wait %s", wait)
		}
		<-time.After(wait)
		if wait := r.Take("a", 2); wait != 0 {
			t.Errorf("after the wait: wait %s", wait)
		}
		if wait := r.Take("b", 61); wait != limit.Never {
			t.Errorf("more than a minute's worth: wait %s", wait)
		}
		if wait := r.Take("b", 59); wait != 0 {
			t.Errorf("what was refused was taken: wait %s", wait)
		}
		if wait := limit.NewRate(0).Take("a", 1e6); wait != 0 {
			t.Errorf("without a limit: wait %s", wait)
		}
	})
}

// Names that come and go take no room for ever, and one that has used up its
// share gets no other by that.
func TestRateForgetsTheIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limit.NewRate(1)
		r.Take("busy", 1)
		for i := range 5000 {
			r.Take(strconv.Itoa(i), 0)
		}
		if n := r.Names(); n > 1025 {
			t.Errorf("%d names are kept", n)
		}
		if wait := r.Take("busy", 1); wait == 0 {
			t.Error("a name that has used up its share was forgotten")
		}
	})
}
