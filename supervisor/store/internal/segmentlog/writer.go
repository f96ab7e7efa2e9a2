package segmentlog

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	// DefaultSegments and DefaultSegmentSize bound a log on disk (SPEC §7).
	DefaultSegments    = 4
	DefaultSegmentSize = 4 << 20 // bytes
	// DefaultQueue is how much of one agent's events waits to be written, in
	// bytes, and DefaultTotal how much of all. While writes fail an agent has a
	// sixteenth of that.
	DefaultQueue = 4 << 20
	DefaultTotal = 64 << 20

	pause = 10 * time.Millisecond // from one round of writing to the next
)

// Options are what a Writer is made of. Zero fields have defaults.
type Options struct {
	Segments    int   // of a log, at least 2
	SegmentSize int64 // bytes; an event that is larger has a segment for itself
	Queue       int   // bytes of an agent that wait; an event counts as its data and 64 more
	Total       int64 // bytes of all that wait
	Log         *zap.Logger
}

// Writer writes the logs of one server.
type Writer struct {
	o    Options
	log  *zap.Logger
	wake chan struct{} // a value means: something is dirty
	full chan struct{} // a value means: do not pause, a queue is half full
	quit chan struct{}
	done chan struct{}

	begun, once sync.Once // the goroutine was started, and asked to end

	waiting atomic.Int64 // bytes in all queues

	mu    sync.Mutex // guards dirty
	dirty []*Log     // have something to write, each once

	buf []byte // the goroutine's
}

// New returns a Writer, whose goroutine is started by the first event. Close it after its logs.
func New(o Options) *Writer {
	if o.Segments == 0 {
		o.Segments = DefaultSegments
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
	}
	if o.Queue == 0 {
		o.Queue = DefaultQueue
	}
	if o.Total == 0 {
		o.Total = DefaultTotal
	}
	w := &Writer{
		o: o, log: o.Log,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	if w.log == nil {
		w.log = zap.NewNop()
	}
	return w
}

// Close ends the goroutine. What logs that are still open have waiting is
// written before. It is idempotent.
func (w *Writer) Close() {
	w.begun.Do(func() { close(w.done) })
	w.once.Do(func() { close(w.quit) })
	<-w.done
}

func (w *Writer) run() {
	defer close(w.done)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-w.wake:
		case <-w.quit:
			w.last()
			return
		}
		for w.round() {
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-w.full:
			case <-w.quit:
			}
		}
	}
}

// round writes what waits, but for logs that are being written to: these may wait for a slow disk, and the others do
// not wait for that. It reports whether there was anything.
func (w *Writer) round() bool {
	dirty := w.take()
	var busy []*Log
	for _, l := range dirty {
		if !l.files.TryLock() {
			busy = append(busy, l)
			continue
		}
		l.flush(&w.buf)
		l.files.Unlock()
	}
	if len(busy) > 0 {
		w.mu.Lock()
		w.dirty = append(busy, w.dirty...)
		w.mu.Unlock()
	}
	if len(dirty) == 0 {
		w.buf = nil
	}
	return len(dirty) > 0
}

// last writes what waits, whoever is waited for.
func (w *Writer) last() {
	for dirty := w.take(); len(dirty) > 0; dirty = w.take() {
		for _, l := range dirty {
			l.files.Lock()
			l.flush(&w.buf)
			l.files.Unlock()
		}
	}
}

// take takes the logs that have something to write.
func (w *Writer) take() []*Log {
	w.mu.Lock()
	defer w.mu.Unlock()
	dirty := w.dirty
	w.dirty = nil
	return dirty
}

// fullOf is the size beyond which a segment is begun after the one with that header: what is written is a
// quarter at least.
func (w *Writer) fullOf(h header) int64 {
	return max(w.o.SegmentSize, h.Snapshot+w.o.SegmentSize/4)
}

func (w *Writer) enqueue(l *Log) {
	w.begun.Do(func() { go w.run() })
	w.mu.Lock()
	w.dirty = append(w.dirty, l)
	w.mu.Unlock()
	poke(w.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
