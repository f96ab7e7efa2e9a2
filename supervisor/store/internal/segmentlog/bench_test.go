package segmentlog_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/segmentlog"
)

var frame = []byte(`{"type":"message_update","event":{"type":"text_delta","delta":"twelve words of text that a model may say "}}`)

// What an event costs the agent, and what the goroutine that writes costs
// beside it.
func BenchmarkAppend(b *testing.B) {
	w := segmentlog.New(segmentlog.Options{})
	defer w.Close()
	l := open(b, w, filepath.Join(b.TempDir(), "a"))
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	seq := uint64(0)
	for b.Loop() {
		seq++
		l.Append(supervisor.Event{Seq: seq, Type: "message_update", Data: frame})
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRead(b *testing.B) {
	w := segmentlog.New(segmentlog.Options{})
	defer w.Close()
	l := open(b, w, filepath.Join(b.TempDir(), "a"))
	const events = 5_000
	for n := range uint64(events) {
		l.Append(supervisor.Event{Seq: n + 1, Type: "message_update", Data: frame})
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(events * len(frame)))
	for b.Loop() {
		for _, err := range l.Read(0) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkOpen begins logs, and tells what an idle one weighs.
func BenchmarkOpen(b *testing.B) {
	w := segmentlog.New(segmentlog.Options{})
	defer w.Close()
	dir := b.TempDir()
	var logs []*segmentlog.Log
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		l := open(b, w, filepath.Join(dir, fmt.Sprint(len(logs))))
		logs = append(logs, l)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(logs)), "heap-B/log")
	for _, l := range logs {
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
