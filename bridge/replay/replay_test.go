package replay_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"nexus.internal/bridge/replay"
)

func TestUsedOnce(t *testing.T) {
	var s replay.Cache
	now := time.Now()
	later := now.Add(time.Minute)
	for _, step := range []struct {
		name  string
		texts []string
		at    time.Time
		want  error
	}{
		{"new", []string{"a", "b"}, now, nil},
		{"one of two again", []string{"c", "a"}, now, replay.ErrUsed},
		{"the other was not used by that", []string{"c"}, now, nil},
		{"twice at once", []string{"d", "d"}, now, replay.ErrUsed},
		{"at the end of its time", []string{"a"}, later, replay.ErrUsed},
	} {
		if err := s.Use(t.Context(), step.texts, false, step.at, later); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.name, err, step.want)
		}
	}
	for i := range replay.MaxUsed - 3 {
		if err := s.Use(t.Context(), []string{strconv.Itoa(i)}, false, now, later); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Use(t.Context(), []string{"more"}, false, now, later); !errors.Is(err, replay.ErrFull) {
		t.Errorf("with no room: %v, want ErrFull", err)
	}
	if err := s.Use(t.Context(), []string{"a"}, false, now, later); !errors.Is(err, replay.ErrUsed) {
		t.Errorf("what was used is forgotten for want of room: %v", err)
	}
	if err := s.Use(t.Context(), []string{"more"}, false, later.Add(time.Second), later.Add(time.Minute)); err != nil {
		t.Errorf("once the others are over: %v", err)
	}
}

// What lasts is known to the next one, whatever became of the last: what was cut off
// was not used, and what is over is not kept.
func TestUsedByAnEarlierServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signatures")
	open := func() *replay.Cache {
		t.Helper()
		s, err := replay.Open(path, nil)
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
		if err := s.Use(t.Context(), []string{use.text}, use.lasting, now, use.until); err != nil {
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
		for text, want := range map[string]error{"lasts": replay.ErrUsed, "too": replay.ErrUsed} {
			if err := s.Use(t.Context(), []string{text}, true, now, later); !errors.Is(err, want) {
				t.Errorf("life %d, %s: %v, want %v", life, text, err, want)
			}
		}
	}
	for _, text := range []string{"does not", "is over"} {
		if err := s.Use(t.Context(), []string{text}, true, now, later); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// The file does not grow for ever, and one that cannot be written uses nothing.
func TestFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signatures")
	s, err := replay.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 3 * replay.MaxUsed {
		now = now.Add(time.Millisecond)
		if err := s.Use(t.Context(), []string{strconv.Itoa(i)}, true, now, now.Add(time.Second)); err != nil {
			t.Fatal(i, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2*replay.MaxUsed*32 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Use(t.Context(), []string{"x"}, true, now, now.Add(time.Second)); err == nil || errors.Is(err, replay.ErrUsed) {
		t.Errorf("a file that cannot be written: %v", err)
	}
	if err := s.Use(t.Context(), []string{"x"}, false, now, now.Add(time.Second)); err != nil {
		t.Errorf("it was used by that: %v", err)
	}
	if _, err := replay.Open(t.TempDir(), nil); err == nil {
		t.Error("a directory is taken")
	}
}
