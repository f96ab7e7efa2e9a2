package segmentlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
)

const (
	// reserve is how far ahead the number is that a log notes.
	reserve = 1 << 20
	// eventCost is what an event counts in the queue beyond its data, in bytes. Its
	// line is shorter than both.
	eventCost = 64
)

// Snapshot makes of the lines of a segment those that the next one begins with, and says
// how many rooms these want.
type Snapshot func(lines [][]byte) (kept []byte, rooms int)

// Log is what is kept of one agent. It is made by [Writer.Open].
type Log struct {
	w        *Writer
	dir      string
	snapshot Snapshot
	first    uint64 // Last

	overwritten atomic.Uint64 // see Overwritten

	files    sync.Mutex // guards what follows, taken before mu; held while the disk works
	segments []Segment  // oldest first; the last one is written to
	file     *os.File   // the last segment, locked; nil once closed
	head     header     // its own
	full     int64      // a segment is begun beyond that size of the last one: bytes
	rooms    []int64    // where lines of spaces are in it
	account  []byte
	written  uint64 // the number of the last event on disk
	backlog  []byte // lines that go before whatever is written next
	spoiled  bool   // what follows the last segment's size could not be cut off
	stale    bool   // the last segment is not in its place any more
	failing  bool   // the last write failed

	mu      sync.Mutex // guards what follows
	pending []supervisor.Event
	size    int    // of pending, in bytes as the bound counts
	limit   int    // of size
	seq     uint64 // the last number that was appended, or Last
	lost    uint64 // events that pending had no room for since the last write
	queued  bool   // the Writer knows that pending is not empty
	closed  bool
}

// Open opens the log in the directory dir, or begins one, and takes its lock. lines are those
// that are neither events nor accounts. Errors wrap ErrInUse, a *VersionError or a *DamageError,
// or what the system says.
func (w *Writer) Open(dir string, snapshot Snapshot) (l *Log, lines [][]byte, err error) {
	l = &Log{w: w, dir: dir, snapshot: snapshot, limit: w.o.Queue}
	if lines, err = l.open(); err != nil {
		return nil, nil, fmt.Errorf("open records %s: %w", dir, err)
	}
	return l, lines, nil
}

func (l *Log) open() (lines [][]byte, err error) {
	for l.file == nil {
		err := l.claim()
		if errors.Is(err, errUnsynced) {
			err = os.RemoveAll(l.dir)
		} else if errors.Is(err, fs.ErrNotExist) {
			return nil, l.create()
		}
		if err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, safefile.Release(l.file))
		}
	}()
	end := l.end()
	data, c, err := end.read(l.file)
	if err != nil {
		return nil, err
	}
	if l.account, err = accountIn(data, l.head, c); err != nil {
		return nil, &DamageError{end.Path, err}
	}
	l.rooms, l.full = c.rooms, l.w.fullOf(l.head)
	l.written = max(c.last, end.First-1)
	l.first = max(c.last, l.head.Reserved)
	l.seq = l.first
	end.Size = c.size
	if err := l.mend(data, c); err != nil {
		return nil, err
	}
	if c.holes {
		if err := l.rotate(l.written+1, false); err != nil {
			l.w.log.Warn("damaged records go on where they are", zap.String("dir", l.dir), zap.Error(err))
		}
	}
	return c.lines, nil
}

// create makes the log, whole or not at all, with its first segment open and locked.
func (l *Log) create() error {
	next, err := unfinishedDir(l.dir)
	if err != nil {
		return err
	}
	s, h, file, err := begin(next, 1, header{Since: 1, First: 1}, Past{}, false)
	if err != nil {
		return errors.Join(err, os.RemoveAll(next))
	}
	if err := os.Rename(next, l.dir); err != nil {
		return errors.Join(err, safefile.Release(file), os.RemoveAll(next))
	}
	s.Path = filepath.Join(l.dir, filepath.Base(s.Path))
	l.segments, l.head, l.file, l.full = []Segment{s}, h, file, l.w.fullOf(h)
	return nil
}

// claim opens and locks the last segment, and finds those before it; file is nil if there is
// another one by then.
func (l *Log) claim() error {
	was, _, file, err := last(l.dir, os.O_RDWR)
	if err != nil {
		return err
	}
	if err = safefile.Lock(file); err == nil { // what is read then nobody changes
		l.segments, l.head, err = segments(l.dir)
	}
	switch {
	case err == nil && l.end().Number == was.Number:
		l.file = file
		return nil
	case errors.Is(err, safefile.ErrLocked):
		err = ErrInUse
	case errors.Is(err, fs.ErrNotExist):
		err = nil // it is looked for again
	}
	return errors.Join(err, safefile.Release(file))
}

// mend removes what a kill or damage left beside the sound lines of a log.
func (l *Log) mend(data []byte, c content) error {
	tail := data[c.size:]
	if len(tail) > 0 {
		l.w.log.Warn("records: a damaged end is cut off", zap.String("path", l.end().Path), zap.Int("bytes", len(tail)))
	}
	if c.holes || bytes.IndexByte(tail, '\n') >= 0 { // more than the line that the end of a server tore
		l.w.log.Warn("records are damaged", zap.String("path", l.end().Path), zap.String("copy", l.dir+damaged))
		if err := errors.Join(os.RemoveAll(l.dir+damaged), safefile.Replace(l.dir+damaged, data, false)); err != nil {
			return err
		}
	}
	if len(tail) > 0 {
		if err := l.file.Truncate(c.size); err != nil {
			return err
		}
	}
	if l.head.Account >= c.size { // its line was not written whole
		l.head.Account = c.account
	}
	return l.clear()
}

// clear removes the files in dir that are made as segments and none of the log.
func (l *Log) clear() error {
	entries, err := safefile.ReadDir(l.dir)
	errs := []error{err}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), unfinished)
		path := filepath.Join(l.dir, entry.Name())
		if filepath.Ext(name) == suffix && !slices.ContainsFunc(l.segments, func(s Segment) bool { return s.Path == path }) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

func (l *Log) end() *Segment { return &l.segments[len(l.segments)-1] }

// Last is the number after which the agent's numbers go on: that of the last
// event if the log was closed, else one that is certainly not below it. It is 0
// for a new log.
func (l *Log) Last() uint64 { return l.first }

// Begin notes a number ahead before the first one is given. That it cannot be written is logged.
func (l *Log) Begin() {
	l.files.Lock()
	defer l.files.Unlock()
	if err := l.note(l.first + reserve); err != nil {
		l.failed(err)
	}
}

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

// Account is the account that the log has; nil for none. It must not be changed.
func (l *Log) Account() []byte {
	l.files.Lock()
	defer l.files.Unlock()
	return l.account
}

// Close writes what waits and the last number, and gives the lock back. The error is
// that of the disk; the log is closed all the same. It is idempotent.
func (l *Log) Close() error {
	l.files.Lock()
	defer l.files.Unlock()
	if !l.close() {
		return nil
	}
	l.flush(new([]byte))
	var errs []error
	if err := l.put(nil); err != nil {
		errs = append(errs, fmt.Errorf("%d bytes of outcomes not written: %w", len(l.backlog), err))
	}
	if n := l.drop(); n > 0 {
		errs = append(errs, fmt.Errorf("%d events not written", n))
	}
	errs = append(errs, l.note(l.seq), safefile.Release(l.file))
	l.file = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close records %s: %w", l.dir, err)
	}
	return nil
}

// Remove closes the log and keeps nothing but the account.
func (l *Log) Remove() error {
	l.files.Lock()
	defer l.files.Unlock()
	if !l.close() {
		return nil
	}
	l.drop()
	var err error
	if l.account != nil {
		err = l.reset()
	} else {
		err = Remove(l.dir)
	}
	err = errors.Join(err, safefile.Release(l.file)) // the lock goes last
	l.file = nil
	if err != nil {
		return fmt.Errorf("remove records: %w", err)
	}
	return nil
}

// close refuses what comes. It reports false if that was done before. files is held.
func (l *Log) close() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.file != nil
}

// drop gives up what waits. files is held.
func (l *Log) drop() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = len(l.pending)
	l.pending = nil
	l.resize(-l.size)
	return n
}

// Remove removes the log in dir, which nobody has open, with all that belongs to it.
func Remove(dir string) error {
	errs := []error{os.RemoveAll(dir + unfinished)}
	if err := os.Rename(dir, dir+unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, os.RemoveAll(dir+unfinished), os.RemoveAll(dir+damaged))...)
}
