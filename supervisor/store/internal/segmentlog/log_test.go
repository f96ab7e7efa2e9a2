package segmentlog_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/segmentlog"
)

// event makes one whose data has about size bytes.
func event(seq uint64, size int) supervisor.Event {
	data := fmt.Sprintf(`{"type":"note","n":%d,"fill":"%s"}`, seq, strings.Repeat("x", size))
	return supervisor.Event{Seq: seq, Type: "note", Data: []byte(data)}
}

func open(t testing.TB, w *segmentlog.Writer, dir string) *segmentlog.Log {
	t.Helper()
	l, _, err := w.Open(dir, nothing)
	if err != nil {
		t.Fatal(err)
	}
	l.Begin()
	return l
}

// nothing is a snapshot of a log that has nothing but events.
func nothing([][]byte) ([]byte, int) { return nil, 0 }

func writer(t testing.TB, o segmentlog.Options) *segmentlog.Writer {
	t.Helper()
	w := segmentlog.New(o)
	t.Cleanup(w.Close)
	return w
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// read takes all events after a number; it checks what each says.
func read(t fataler, l *segmentlog.Log, after uint64) (numbers []uint64) {
	t.Helper()
	last := after
	for e, err := range l.Read(after) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq <= last || e.Type != "note" || !strings.HasPrefix(string(e.Data), fmt.Sprintf(`{"type":"note","n":%d,`, e.Seq)) {
			t.Fatal(fmt.Sprintf("event %d after %d: %.60s", e.Seq, last, e.Data))
		}
		last = e.Seq
		numbers = append(numbers, e.Seq)
	}
	return numbers
}

func span(from, to uint64) (all []uint64) {
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

func TestEventsAndNumbersSurvive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "alice.records")
	for life := uint64(0); life < 3; life++ {
		w := segmentlog.New(segmentlog.Options{})
		l := open(t, w, dir)
		if l.Last() != life*10 {
			t.Errorf("life %d goes on after %d, want %d", life, l.Last(), life*10)
		}
		for n := l.Last() + 1; n <= life*10+10; n++ {
			l.Append(event(n, 100))
		}
		for _, after := range []uint64{0, 7, life*10 + 9, life*10 + 10, 1 << 40} {
			if diff := cmp.Diff(span(after+1, life*10+10), read(t, l, after)); diff != "" {
				t.Errorf("life %d after %d (-want +got):\n%s", life, after, diff)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l.Append(event(99, 0))
		w.Close()
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, fmt.Sprintf("%020d.jsonl", 1)): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	l := open(t, writer(t, segmentlog.Options{}), dir)
	if err := l.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after Remove: %v", err)
	}
	l.Append(event(99, 0))
	if got := read(t, l, 0); got != nil {
		t.Errorf("a removed log gives %v", got)
	}
}

// Without a Close nobody knows which numbers were given last: none is given
// again.
func TestNumbersAfterAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	w := writer(t, segmentlog.Options{})
	l := open(t, w, dir)
	for n := range uint64(5) {
		l.Append(event(n+1, 10))
	}
	until(t, l, func() bool { return onDisk(t, dir) == 5 })
	l.Abandon()
	given := open(t, w, dir) // numbers that are not on the disk when its server is killed
	given.Abandon()
	again := open(t, w, dir)
	if again.Last() <= given.Last() {
		t.Errorf("goes on after %d, and before that after %d", again.Last(), given.Last())
	}
	if again.Last() < 5 || again.Last() > 5+2*segmentlog.Reserve {
		t.Errorf("goes on after %d", again.Last())
	}
	if diff := cmp.Diff(span(1, 5), read(t, again, 0)); diff != "" {
		t.Error(diff)
	}
	next := again.Last() + 1
	again.Append(event(next, 10))
	again.Close()
	if got := open(t, w, dir).Last(); got != next {
		t.Errorf("after a Close it goes on after %d, want %d", got, next)
	}
}

func onDisk(t *testing.T, dir string) int {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(data), "\n") - 1
	}
	return lines
}

func diskSize(t fataler, dir string) (files int, size int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	return len(entries), size
}

// Whatever is appended, and wherever the last write was torn: what is read is
// the end of what was appended, without a hole but where a kill left one, and
// the disk's bound holds.
func TestSegments(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const segmentSize, largest = 2000, 3000
		o := segmentlog.Options{Segments: rapid.IntRange(2, 4).Draw(r, "segments"), SegmentSize: segmentSize}
		base, err := os.MkdirTemp("", "eventlog")
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(base)
		dir := filepath.Join(base, "a")
		w := segmentlog.New(o)
		defer w.Close()
		l, _, err := w.Open(dir, nothing)
		if err != nil {
			r.Fatal(err)
		}
		var all []uint64 // numbers that were appended and not torn off
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			next := l.Last() + 1
			if len(all) > 0 {
				next = max(next, all[len(all)-1]+1)
			}
			for _, size := range rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, largest)), 0, 20).Draw(r, "sizes") {
				l.Append(event(next, size))
				all = append(all, next)
				next++
			}
			switch rapid.IntRange(0, 2).Draw(r, "then") {
			case 0:
				if err := l.Close(); err != nil {
					r.Fatal(err)
				}
				l, _, err = w.Open(dir, nothing)
			case 1:
				if err := l.Close(); err != nil {
					r.Fatal(err)
				}
				all = tear(r, dir, all)
				l, _, err = w.Open(dir, nothing)
			}
			if err != nil {
				r.Fatal(err)
			}
			after := uint64(0)
			if len(all) > 0 {
				after = all[rapid.IntRange(0, len(all)-1).Draw(r, "after")]
			}
			for l.Queued() { // what goes while it is read leaves a hole
				runtime.Gosched()
			}
			got := read(r, l, 0)
			if want := all[len(all)-len(got):]; !slices.Equal(want, got) {
				r.Fatal(cmp.Diff(want, got))
			}
			i, _ := slices.BinarySearch(got, after+1)
			if rest := read(r, l, after); !slices.Equal(rest, got[i:]) {
				r.Fatalf("after %d: %v, want %v", after, rest, got[i:])
			}
			if len(got) == 0 && len(all) > 0 {
				r.Fatal("nothing is left")
			}
			files, size := diskSize(r, dir)
			if files > o.Segments || size > int64(files)*(segmentSize+200)+int64(files)*(largest+200) {
				r.Fatalf("%d files of %d bytes", files, size)
			}
		}
		if err := l.Close(); err != nil {
			r.Fatal(err)
		}
	})
}

// tear cuts a few bytes off the last segment, as a kill in the middle of a
// write does, but no more than one line. It returns what is left of all.
func tear(r *rapid.T, dir string, all []uint64) []uint64 {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(paths) == 0 {
		r.Fatal(paths, err)
	}
	path := paths[len(paths)-1]
	data, err := os.ReadFile(path)
	if err != nil {
		r.Fatal(err)
	}
	if strings.Count(string(data), "\n") < 3 { // leave one event
		return all
	}
	start := strings.LastIndexByte(string(data[:len(data)-1]), '\n') + 1
	cut := rapid.IntRange(start, len(data)-1).Draw(r, "cut")
	if err := os.Truncate(path, int64(cut)); err != nil {
		r.Fatal(err)
	}
	return all[:len(all)-1]
}

// The disk does not answer: the agent is not kept waiting, the oldest events
// are lost, and what waits can be read once the disk answers.
// Whatever the sizes of the lines, reading begins with the next number, or the
// next that is there.
func TestReadsFromAnywhere(t *testing.T) {
	l := open(t, writer(t, segmentlog.Options{}), filepath.Join(t.TempDir(), "a"))
	var all []uint64
	for i := range 400 {
		size := []int{10, 100, 3_000, 20, 70_000, 200, 9_000}[i%7]
		all = append(all, uint64(5*i+3))
		l.Append(event(uint64(5*i+3), size))
		if line := fmt.Sprintf(`{"other":"%s"}`, strings.Repeat("x", size)) + "\n"; i%3 == 0 {
			must(t, l.Write([]byte(line), i%5))
		}
	}
	if err := l.Close(); err != nil { // now all is on the disk
		t.Fatal(err)
	}
	for after := range uint64(5 * 400) {
		i, _ := slices.BinarySearch(all, after+1)
		n := 0
		for e, err := range l.Read(after) {
			if err != nil || e.Seq != all[i+n] {
				t.Fatalf("after %d: %d, %v, want %d", after, e.Seq, err, all[i+n])
			}
			if n++; n == 3 {
				break
			}
		}
		if want := min(3, len(all)-i); n != want {
			t.Fatalf("after %d: %d events, want %d", after, n, want)
		}
	}
}

func TestASlowDiskCostsTheLog(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	w := writer(t, segmentlog.Options{Queue: 64 << 10, Log: zap.New(core)})
	l := open(t, w, filepath.Join(t.TempDir(), "a"))
	release := l.Stall()
	const events = 1000
	for n := range uint64(events) {
		l.Append(event(n+1, 1000))
	}
	release()
	got := read(t, l, 0)
	if len(got) > 70 || len(got) < 50 || got[len(got)-1] != events {
		t.Errorf("%d events are left, %v", len(got), got)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if logs.FilterMessage("event log too slow").Len() != 1 {
		t.Errorf("logged: %v", logs.All())
	}
	if again := open(t, w, l.Dir()); again.Last() != events || len(read(t, again, 0)) != len(got) {
		t.Errorf("after that: %d, %v", again.Last(), read(t, again, 0))
	}
}

// A log that waits for a slow disk holds up no other.
func TestASlowDiskOfAnotherAgent(t *testing.T) {
	w := writer(t, segmentlog.Options{})
	slow, other := open(t, w, filepath.Join(t.TempDir(), "a")), open(t, w, filepath.Join(t.TempDir(), "b"))
	release := slow.Stall()
	slow.Append(event(1, 10))
	other.Append(event(1, 10))
	until(t, other, func() bool { return onDisk(t, other.Dir()) == 1 })
	release()
	until(t, slow, func() bool { return onDisk(t, slow.Dir()) == 1 })
}

// All queues together are bounded too: who appends then loses its own.
func TestTheQueuesAreBoundedTogether(t *testing.T) {
	w := writer(t, segmentlog.Options{Total: 64 << 10})
	base := t.TempDir()
	var logs []*segmentlog.Log
	var releases []func()
	for i := range 4 {
		l := open(t, w, filepath.Join(base, fmt.Sprint(i)))
		logs = append(logs, l)
		releases = append(releases, l.Stall())
	}
	for n := range uint64(100) {
		for _, l := range logs {
			l.Append(event(n+1, 1000))
		}
	}
	for _, release := range releases {
		release()
	}
	kept := 0
	for i, l := range logs {
		got := read(t, l, 0)
		if kept += len(got); got[len(got)-1] != 100 {
			t.Errorf("log %d lost its latest", i)
		}
		must(t, l.Close())
	}
	if kept > 75 || kept < 50 {
		t.Errorf("%d events were kept", kept)
	}
	if left := w.Waiting(); left != 0 {
		t.Errorf("%d bytes wait in no queue", left)
	}
}

// An event goes to disk at once, those that follow in its wake together. Then
// the log holds nothing.
func TestAnIdleLogHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := segmentlog.New(segmentlog.Options{})
		defer w.Close()
		dir := filepath.Join(t.TempDir(), "a")
		l := open(t, w, dir)
		l.Append(event(1, 10))
		synctest.Wait()
		if onDisk(t, dir) != 1 {
			t.Errorf("%d events on disk at once", onDisk(t, dir))
		}
		l.Append(event(2, 10))
		l.Append(event(3, 10))
		synctest.Wait()
		if onDisk(t, dir) != 1 {
			t.Error("events are written one by one")
		}
		<-time.After(10 * time.Millisecond)
		synctest.Wait()
		if onDisk(t, dir) != 3 {
			t.Errorf("%d events on disk 10 ms later", onDisk(t, dir))
		}
		<-time.After(10 * time.Millisecond)
		synctest.Wait()
		if l.Held() != 0 || w.Held() != 0 {
			t.Errorf("idle: %d events and %d bytes are held", l.Held(), w.Held())
		}
	})
}

// Many agents at once, readers among them.
func TestManyLogs(t *testing.T) {
	w := writer(t, segmentlog.Options{Segments: 4, SegmentSize: 64 << 10})
	var all sync.WaitGroup
	base := t.TempDir()
	for i := range 100 {
		l := open(t, w, filepath.Join(base, fmt.Sprint(i)))
		all.Go(func() {
			for n := range uint64(300) {
				l.Append(event(n+1, 100))
				if n%100 == 0 {
					if got := read(t, l, 0); len(got) != int(n)+1 {
						t.Errorf("log %d: %d events, want %d", i, len(got), n+1)
					}
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if got := read(t, l, 0); len(got) != 300 {
				t.Errorf("log %d has %d events", i, len(got))
			}
		})
	}
	all.Wait()
}

// Who takes the directory away, or puts something else in its place, costs the
// log events, not the agent its time; it goes on when it can.
func TestSomebodyMeddles(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	w := writer(t, segmentlog.Options{Log: zap.New(core)})
	dir := filepath.Join(t.TempDir(), "alice.records")
	l := open(t, w, dir)
	n := uint64(0)
	appendUntil := func(done func() bool) {
		t.Helper()
		for range 10 {
			n++
			l.Append(event(n, 10))
			until(t, l, func() bool { return !l.Queued() })
			l.Stall()() // the write is over, and logged
			if done() {
				return
			}
		}
		t.Fatalf("nothing came of it: %v", logs.All())
	}
	logged := func(what string, times int) func() bool {
		return func() bool { return logs.FilterMessageSnippet(what).Len() == times }
	}
	appendUntil(func() bool { return onDisk(t, dir) == 1 })

	must(t, os.RemoveAll(dir))
	must(t, os.WriteFile(dir, nil, 0o600))
	appendUntil(logged("not written", 1))
	must(t, os.Remove(dir))
	appendUntil(logged("written again", 1))
	if diff := cmp.Diff(span(2, n), read(t, l, 0)); diff != "" {
		t.Errorf("what came after the directory was lost (-want +got):\n%s", diff)
	}

	path := filepath.Join(dir, fmt.Sprintf("%020d.jsonl", 2))
	must(t, os.WriteFile(path, []byte("not ours"), 0o600))
	lost := n
	appendUntil(func() bool { return true }) // it begins a segment
	must(t, l.Close())
	if diff := cmp.Diff(span(lost+1, n), read(t, open(t, w, dir), 0)); diff != "" {
		t.Errorf("what came after the file was changed (-want +got):\n%s", diff)
	}
}

// A file in the place of the directory: nothing can be known of the numbers.
func TestOpenRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "alice.records")
	must(t, os.WriteFile(dir, nil, 0o600))
	if _, _, err := writer(t, segmentlog.Options{}).Open(dir, nothing); err == nil || !strings.Contains(err.Error(), "alice.records") {
		t.Errorf("Open = %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for the Writer's goroutine.
func until(t *testing.T, l *segmentlog.Log, done func() bool) {
	t.Helper()
	for !done() {
		l.Stall()()
		runtime.Gosched()
	}
}
