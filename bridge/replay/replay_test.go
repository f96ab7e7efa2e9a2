package replay_test

import (
	"context"
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
		if err := s.Use(t.Context(), step.texts, "", step.at, later); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.name, err, step.want)
		}
	}
	for i := range replay.MaxUsed - 3 {
		if err := s.Use(t.Context(), []string{strconv.Itoa(i)}, "", now, later); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Use(t.Context(), []string{"more"}, "", now, later); !errors.Is(err, replay.ErrFull) {
		t.Errorf("with no room: %v, want ErrFull", err)
	}
	if err := s.Use(t.Context(), []string{"a"}, "", now, later); !errors.Is(err, replay.ErrUsed) {
		t.Errorf("what was used is forgotten for want of room: %v", err)
	}
	if err := s.Use(t.Context(), []string{"more"}, "", later.Add(time.Second), later.Add(time.Minute)); err != nil {
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
		text  string
		key   string
		until time.Time
	}{{"lasts", "k", later}, {"too", "k", later}, {"does not", "", later}, {"is over", "k", now.Add(-time.Second)}} {
		if err := s.Use(t.Context(), []string{use.text}, use.key, now, use.until); err != nil {
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
			if err := s.Use(t.Context(), []string{text}, "k", now, later); !errors.Is(err, want) {
				t.Errorf("life %d, %s: %v, want %v", life, text, err, want)
			}
		}
	}
	for _, text := range []string{"does not", "is over"} {
		if err := s.Use(t.Context(), []string{text}, "k", now, later); err != nil {
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
		if err := s.Use(t.Context(), []string{strconv.Itoa(i)}, "k", now, now.Add(time.Second)); err != nil {
			t.Fatal(i, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2*replay.MaxUsed*32 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Use(t.Context(), []string{"x"}, "k", now, now.Add(time.Second)); err == nil || errors.Is(err, replay.ErrUsed) {
		t.Errorf("a file that cannot be written: %v", err)
	}
	if err := s.Use(t.Context(), []string{"x"}, "", now, now.Add(time.Second)); err != nil {
		t.Errorf("it was used by that: %v", err)
	}
	if _, err := replay.Open(t.TempDir(), nil); err == nil {
		t.Error("a directory is taken")
	}
}

// A key for less that fills its share keeps neither the full keys nor others from signing, and all of these together do not keep the full keys
// from it. What was used stays so.
func TestSharesOfKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signatures")
	s, err := replay.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	later := now.Add(time.Hour)
	n := 0
	fill := func(key string, want int) {
		t.Helper()
		for i := range want + 1 {
			n++
			switch err := s.Use(t.Context(), []string{strconv.Itoa(n)}, key, now, later); {
			case i < want && err != nil:
				t.Fatalf("number %d of key %q: %v", i, key, err)
			case i == want && !errors.Is(err, replay.ErrFull):
				t.Errorf("key %q has more than %d: %v", key, want, err)
			}
		}
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		fill(key, replay.MaxUsedOfKey)
	}
	fill("e", 0)
	fill("", replay.MaxUsed)
	if err := s.Use(t.Context(), []string{"1"}, "a", now, later); !errors.Is(err, replay.ErrUsed) {
		t.Errorf("what a key for less has used is forgotten for want of room: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A later server knows what they have used, and not of whom: it takes room of all keys for less, and none of the full keys.
	if s, err = replay.Open(path, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	fill("a", 0)
	fill("", replay.MaxUsed)
	now = later.Add(time.Second)
	later = now.Add(time.Hour)
	fill("a", replay.MaxUsedOfKey)
	fill("b", replay.MaxUsedOfKey)
}

// machines agree on what they are told, or say what they are to say.
type machines struct {
	err  error
	used map[string]bool
}

func (m *machines) Use(_ context.Context, texts []string) error {
	for _, text := range texts {
		if m.used[text] {
			return replay.ErrUsed
		}
		m.used[text] = true
	}
	return m.err
}

// What machines keep for eleven minutes counts as long for the key for less that has used it, also if it is not known
// whether they agreed: else a key would fill the disks of all of them by signatures that are over in a second, or by connections that it ends.
func TestSharesWhereMachinesAgree(t *testing.T) {
	m := &machines{used: map[string]bool{}, err: errors.New("no majority")}
	s, err := replay.Open(filepath.Join(t.TempDir(), "signatures"), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	now := time.Now()
	use := func(text, key string) error {
		return s.Use(t.Context(), []string{text}, key, now, now.Add(time.Second))
	}
	for i := range replay.MaxUsedOfKey {
		if i == replay.MaxUsedOfKey/2 {
			m.err = nil
		}
		if err := use(strconv.Itoa(i), "k"); !errors.Is(err, m.err) {
			t.Fatal(i, err)
		}
		now = now.Add(time.Millisecond)
	}
	if err := use("more", "k"); !errors.Is(err, replay.ErrFull) {
		t.Errorf("more than its share: %v", err)
	}
	m.used = map[string]bool{}
	if err := use("0", "k"); err != nil {
		t.Errorf("what they did not agree on, again: %v", err)
	}
	if err := use("0", "k"); !errors.Is(err, replay.ErrUsed) {
		t.Errorf("and once more: %v", err)
	}
	if err := use("more", "l"); err != nil {
		t.Errorf("another key: %v", err)
	}
	now = now.Add(replay.AgreedFor)
	if err := use("more of the same", "k"); err != nil {
		t.Errorf("once the machines have forgotten: %v", err)
	}
}
