package limit_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/bridge/limit"
)

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
		if wait := r.Take("b", 61); wait != time.Minute {
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

func TestSeen(t *testing.T) {
	var s limit.Seen
	now := time.Now()
	later := now.Add(time.Minute)
	for _, step := range []struct {
		name  string
		texts []string
		at    time.Time
		want  error
	}{
		{"new", []string{"a", "b"}, now, nil},
		{"one of two again", []string{"c", "a"}, now, limit.ErrSeen},
		{"the other was not used by that", []string{"c"}, now, nil},
		{"twice at once", []string{"d", "d"}, now, limit.ErrSeen},
		{"at the end of its time", []string{"a"}, later, limit.ErrSeen},
	} {
		if err := s.Use(step.texts, step.at, later); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.name, err, step.want)
		}
	}
	for i := range limit.MaxSeen - 3 {
		if err := s.Use([]string{strconv.Itoa(i)}, now, later); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Use([]string{"more"}, now, later); !errors.Is(err, limit.ErrFull) {
		t.Errorf("with no room: %v, want ErrFull", err)
	}
	if err := s.Use([]string{"a"}, now, later); !errors.Is(err, limit.ErrSeen) {
		t.Errorf("what was used is forgotten for want of room: %v", err)
	}
	if err := s.Use([]string{"more"}, later.Add(time.Second), later.Add(time.Minute)); err != nil {
		t.Errorf("once the others are over: %v", err)
	}
}
