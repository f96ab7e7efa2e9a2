package limit_test

import (
	"errors"
	"os"
	"path/filepath"
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
		if err := s.Use(step.texts, false, step.at, later); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.name, err, step.want)
		}
	}
	for i := range limit.MaxSeen - 3 {
		if err := s.Use([]string{strconv.Itoa(i)}, false, now, later); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Use([]string{"more"}, false, now, later); !errors.Is(err, limit.ErrFull) {
		t.Errorf("with no room: %v, want ErrFull", err)
	}
	if err := s.Use([]string{"a"}, false, now, later); !errors.Is(err, limit.ErrSeen) {
		t.Errorf("what was used is forgotten for want of room: %v", err)
	}
	if err := s.Use([]string{"more"}, false, later.Add(time.Second), later.Add(time.Minute)); err != nil {
		t.Errorf("once the others are over: %v", err)
	}
}

// What lasts is known to the next one, whatever became of the last: what was cut off
// was not used, and what is over is not kept.
func TestSeenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signatures")
	open := func() *limit.Seen {
		t.Helper()
		s, err := limit.OpenSeen(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	now := time.Now()
	later := now.Add(time.Hour)
	s := open()
	for _, use := range []struct {
		text    string
		lasting bool
		until   time.Time
	}{{"lasts", true, later}, {"too", true, later}, {"does not", false, later}, {"is over", true, now.Add(-time.Second)}} {
		if err := s.Use([]string{use.text}, use.lasting, now, use.until); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = file.WriteString("99999") // as by a machine that lost its power
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	for life := range 3 { // each of which writes the file anew
		s = open() // while the one before it was never closed
		for text, want := range map[string]error{"lasts": limit.ErrSeen, "too": limit.ErrSeen} {
			if err := s.Use([]string{text}, true, now, later); !errors.Is(err, want) {
				t.Errorf("life %d, %s: %v, want %v", life, text, err, want)
			}
		}
	}
	for _, text := range []string{"does not", "is over"} {
		if err := s.Use([]string{text}, true, now, later); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// The file does not grow for ever, and one that cannot be written uses nothing.
func TestSeenFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signatures")
	s, err := limit.OpenSeen(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 3 * limit.MaxSeen {
		now = now.Add(time.Millisecond)
		if err := s.Use([]string{strconv.Itoa(i)}, true, now, now.Add(time.Second)); err != nil {
			t.Fatal(i, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2*limit.MaxSeen*32 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Use([]string{"x"}, true, now, now.Add(time.Second)); err == nil || errors.Is(err, limit.ErrSeen) {
		t.Errorf("a file that cannot be written: %v", err)
	}
	if err := s.Use([]string{"x"}, false, now, now.Add(time.Second)); err != nil {
		t.Errorf("it was used by that: %v", err)
	}
	if _, err := limit.OpenSeen(t.TempDir()); err == nil {
		t.Error("a directory is taken")
	}
}
