package eventlog

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
)

const (
	// reserve is how far ahead the number is that a log notes.
	reserve = 1 << 20
	// eventCost is what an event counts in the queue beyond its data, in bytes.
	eventCost = 64
	// chunk is how much is put into a file by one write, in bytes, unless one
	// event is larger.
	chunk = 256 << 10
)

// Log is the events of one agent. It is made by [Writer.Open].
type Log struct {
	w     *Writer
	dir   string
	last  uint64 // Last
	round uint64 // the last in which it was written; of the Writer's goroutine

	files    sync.Mutex // guards what follows, taken before mu; held while the disk works
	segments []segment  // oldest first
	file     *os.File   // the last segment; nil while nothing is written
	reserved uint64     // noted in the last segment
	written  uint64     // the last number on disk
	stale    bool       // the last segment cannot be written any more
	failing  bool       // the last write failed

	mu      sync.Mutex // guards what follows
	pending []supervisor.Event
	spare   []supervisor.Event // empty; pending next
	size    int                // of pending, in bytes as the bound counts
	limit   int                // of size
	seq     uint64             // the last number that was appended, or Last
	lost    uint64             // events that pending had no room for since the last write
	queued  bool               // the Writer knows that pending is not empty
	closed  bool
}

// Open opens the log in the directory dir or begins one, with a torn tail cut
// off. The error is that what is there cannot be read; that nothing can be
// written is logged, and tried again later.
func (w *Writer) Open(dir string) (*Log, error) {
	l := &Log{w: w, dir: dir, limit: w.o.Queue}
	if err := l.load(); err != nil {
		return nil, fmt.Errorf("open event log %s: %w", dir, err)
	}
	l.seq = l.last
	l.files.Lock()
	defer l.files.Unlock()
	if err := l.begin(); err != nil {
		l.failed(err)
	}
	l.closeFile()
	return l, nil
}

// load finds out what the directory holds.
func (l *Log) load() error {
	all, err := list(l.dir)
	if err != nil {
		return err
	}
	for len(all) > 0 {
		end := &all[len(all)-1]
		data, err := safefile.Read(end.path(l.dir), l.w.o.SegmentSize+2*frame.MaxPayload)
		_, tooLarge := errors.AsType[*safefile.TooLargeError](err)
		if tooLarge || errors.Is(err, safefile.ErrNotRegular) {
			data, err = nil, nil // none of ours
		}
		if err != nil {
			return err
		}
		reserved, last, good, ok := scan(data, end.first)
		if !ok { // the machine stopped as it was begun, or it is another's
			if err := os.Remove(end.path(l.dir)); err != nil {
				return err
			}
			l.last = max(l.last, end.first-1+reserve)
			all = all[:len(all)-1]
			continue
		}
		if good < len(data) {
			if err := os.Truncate(end.path(l.dir), int64(good)); err != nil {
				return err
			}
		}
		end.size = int64(good)
		l.written = max(last, end.first-1)
		l.last = max(l.last, last, reserved)
		break
	}
	l.segments = all
	return nil
}

// begin notes a number ahead before the first one is given.
func (l *Log) begin() error {
	if len(l.segments) == 0 {
		return l.rotate(l.last + 1)
	}
	return l.note(l.last + reserve)
}

// Last is the number after which the agent's numbers go on: that of the last
// event if the log was closed, else one that is certainly not below it. It is 0
// for a new log.
func (l *Log) Last() uint64 { return l.last }

// Append hands over an event, whose number is above that of the one before. It
// does not wait. The log keeps e.Data, which must not change. After Close it
// does nothing.
func (l *Log) Append(e supervisor.Event) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.seq = e.Seq
	l.pending = append(l.pending, e)
	l.resize(len(e.Data) + eventCost)
	l.bound()
	fresh := !l.queued
	l.queued = true
	hurry := l.limit == l.w.o.Queue && l.size > l.limit/2 // there is no hurry to fail
	l.mu.Unlock()
	if fresh {
		l.w.enqueue(l)
	}
	if hurry {
		poke(l.w.full)
	}
}

// resize notes that so many bytes more wait. mu is held.
func (l *Log) resize(by int) {
	l.size += by
	l.w.waiting.Add(int64(by))
}

// bound loses the oldest events that wait until the bounds hold, or one is
// left. mu is held.
func (l *Log) bound() {
	n := 0
	for (l.size > l.limit || l.w.waiting.Load() > l.w.o.Total) && n < len(l.pending)-1 {
		l.resize(-len(l.pending[n].Data) - eventCost)
		l.pending[n] = supervisor.Event{}
		n++
	}
	l.pending = l.pending[n:]
	l.lost += uint64(n)
}

// flush writes what waits, in buf if that is large enough, and returns buf.
func (l *Log) flush(buf []byte) []byte {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	batch := l.pending
	l.pending, l.spare = l.spare, nil
	l.resize(-l.size)
	l.queued = false
	l.mu.Unlock()
	if len(batch) == 0 {
		return buf
	}
	n, buf, err := l.write(batch, buf)
	if err == nil {
		clear(batch)
		l.succeeded(l.keep(batch[:0], l.w.o.Queue))
		return buf
	}
	l.closeFile()
	l.failed(err)
	l.keep(batch[n:], l.w.o.Queue/16)
	return buf
}

// keep puts back what could not be written, or the empty slice to be used next,
// and sets the bound. Once nothing is put back it tells how many events were
// lost until then.
func (l *Log) keep(batch []supervisor.Event, limit int) (lost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
	if len(batch) == 0 {
		l.spare = batch
		lost, l.lost = l.lost, 0
		return lost
	}
	for _, e := range batch {
		l.resize(len(e.Data) + eventCost)
	}
	l.pending = append(batch, l.pending...)
	l.bound()
	return 0
}

func (l *Log) succeeded(lost uint64) {
	if l.failing {
		l.failing = false
		l.w.log.Info("event log is written again", zap.String("dir", l.dir), zap.Uint64("lost", lost))
	} else if lost > 0 {
		l.w.log.Warn("event log too slow", zap.String("dir", l.dir), zap.Uint64("lost", lost))
	}
}

func (l *Log) failed(err error) {
	if !l.failing {
		l.failing = true
		l.w.log.Warn("event log not written; the agent goes on without", zap.String("dir", l.dir), zap.Error(err))
	}
}

// rest lets go of the descriptor and the empty queue.
func (l *Log) rest() {
	l.files.Lock()
	defer l.files.Unlock()
	l.closeFile()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = nil
	if len(l.pending) == 0 {
		l.pending = nil
	}
}

// Close writes what waits and the last number. The error is that of the disk;
// the log is closed all the same. It is idempotent.
func (l *Log) Close() error {
	if !l.end() {
		return nil
	}
	l.flush(nil)
	l.files.Lock()
	defer l.files.Unlock()
	defer l.closeFile()
	l.mu.Lock()
	left := len(l.pending)
	l.drop()
	l.mu.Unlock()
	if len(l.segments) > 0 {
		if err := l.note(l.seq); err != nil {
			return fmt.Errorf("close event log %s: %w", l.dir, err)
		}
	}
	if left > 0 {
		return fmt.Errorf("close event log %s: %d events not written", l.dir, left)
	}
	return nil
}

// Remove closes the log and takes it off the disk. It may follow Close.
func (l *Log) Remove() error {
	l.end()
	l.files.Lock()
	defer l.files.Unlock()
	l.closeFile()
	l.mu.Lock()
	l.drop()
	l.mu.Unlock()
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("remove event log: %w", err)
	}
	l.segments = nil
	return nil
}

// drop gives up what waits. mu is held.
func (l *Log) drop() {
	l.pending, l.spare = nil, nil
	l.resize(-l.size)
}

// end refuses what comes. It reports false if that was done before.
func (l *Log) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.closed
	l.closed = true
	return !was
}
