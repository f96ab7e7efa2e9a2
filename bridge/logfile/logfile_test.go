package logfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"nexus.internal/bridge/logfile"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func open(t *testing.T, path string) *logfile.Log {
	t.Helper()
	log, err := logfile.Open(path, logfile.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// The log goes on where it was left, and is its owner's alone.
func TestGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	for _, line := range []string{"one\n", "two\n"} {
		log := open(t, path)
		if err := log.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, path); got != "one\ntwo\n" {
		t.Errorf("the log has %q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// The files stay below their bound, whole lines and the youngest are kept, in
// order, whoever writes at once.
func TestBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := open(t, path)
	defer log.Close()
	const writers, kilobytes = 4, 64
	fill := strings.Repeat("x", kilobytes<<10)
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			for n := range (logfile.Kept + 3) * logfile.MaxFile / writers / len(fill) {
				if err := log.Write(fmt.Appendf(nil, "%d %d %s\n", w, n, fill)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	last := map[string]int{}
	for i := logfile.Kept; i >= 0; i-- {
		name := path
		if i > 0 {
			name = fmt.Sprintf("%s.%d", path, i)
		}
		text := read(t, name)
		if len(text) > logfile.MaxFile || i > 0 && len(text) < logfile.MaxFile-2*len(fill) {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		for line := range strings.Lines(text) {
			var w string
			var n int
			if _, err := fmt.Sscan(line, &w, &n); err != nil || !strings.HasSuffix(line, fill+"\n") {
				t.Fatalf("a line of %d bytes in %s: %.20s, %v", len(line), name, line, err)
			}
			if before, seen := last[w]; seen && n != before+1 {
				t.Errorf("line %d of writer %s follows %d", n, w, before)
			}
			last[w] = n
		}
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != logfile.Kept+1 {
		t.Errorf("files %v, %v", files, err)
	}
}

// A log that cannot be written says so, and works again once it can be.
func TestRecovers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	if _, err := logfile.Open(filepath.Join(dir, "audit.jsonl"), logfile.Options{Durable: true}); err == nil {
		t.Error("a log was opened where there is no directory")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log := open(t, filepath.Join(dir, "audit.jsonl"))
	defer log.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := log.Write([]byte("lost\n")); err == nil {
		t.Error("a line went nowhere")
	}
	if err := log.Sync(); err != nil {
		t.Errorf("nothing is there to be synced: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.Write([]byte("kept\n")), log.Sync()); err != nil {
		t.Error(err)
	}
	if got := read(t, filepath.Join(dir, "audit.jsonl")); got != "kept\n" {
		t.Errorf("the log has %q", got)
	}
}

// The file that is moved away, as logrotate does, gets no line more.
func TestMovedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := open(t, path)
	defer log.Close()
	for i, want := range []string{"0\n", "1\n", "2\n"} {
		if err := errors.Join(log.Write(fmt.Appendln(nil, i)), log.Sync()); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != want {
			t.Errorf("the log has %q, want %q", got, want)
		}
		if err := os.Rename(path, fmt.Sprint(path, "-", i)); err != nil {
			t.Fatal(err)
		}
	}
	// One that is emptied in its place goes on there.
	if err := errors.Join(log.Write([]byte("before\n")), os.Truncate(path, 0), log.Write([]byte("after\n"))); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "after\n" {
		t.Errorf("the log has %q", got)
	}
}

// A line that a power cut tore stays alone.
func TestTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte("whole\n{\"torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := open(t, path)
	defer log.Close()
	if err := log.Write([]byte("next\n")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "whole\n{\"torn\nnext\n" {
		t.Errorf("the log has %q", got)
	}
}
