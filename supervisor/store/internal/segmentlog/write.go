package segmentlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
)

// This file is how a log is written. Unexported methods want Log.files.

// chunk is how much is put into a file by one write, in bytes, unless one event is
// larger.
const chunk = 256 << 10

// emptyRoom is a line that says nothing.
var emptyRoom = append(bytes.Repeat([]byte(" "), RoomSize-1), '\n')

// Write writes lines, all or none, with the events that wait, and leaves at least so many
// rooms. After an error none of the lines is there.
func (l *Log) Write(lines []byte, rooms int) error {
	l.files.Lock()
	defer l.files.Unlock()
	return l.write(lines, rooms)
}

func (l *Log) write(lines []byte, rooms int) error {
	if l.file == nil {
		return fs.ErrClosed
	}
	batch := l.take(false)
	buf := buffers.Get().(*[]byte)
	n, err := l.add(buf, batch, lines, rooms)
	l.requeue(batch, n, err)
	if err != nil && len(batch) > 0 { // they may be what is too much
		_, err = l.add(buf, nil, lines, rooms)
	}
	if cap(*buf) <= keptBuffer {
		buffers.Put(buf)
	}
	return err
}

// buffers are what lines are put together in. One of more than keptBuffer bytes is not kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keptBuffer = 64 << 10

// SetAccount replaces the account; nil removes it. With durable it is on the disk when
// SetAccount returns, and so is the first one in any case: the file is no empty one then, after
// whatever end of the machine. If it cannot be written the one before holds.
func (l *Log) SetAccount(account []byte, durable bool) error {
	file, first, err := l.setAccount(account)
	if err != nil || !durable && !first {
		return err
	}
	// Events are written meanwhile: the disk may be slow.
	if err = file.Sync(); err == nil && first {
		err = errors.Join(safefile.SyncDir(l.dir), safefile.SyncDir(filepath.Dir(l.dir)))
	}
	return err
}

// setAccount replaces the account, and returns the file that has it, and whether it is the first.
func (l *Log) setAccount(account []byte) (file *os.File, first bool, err error) {
	l.files.Lock()
	defer l.files.Unlock()
	if l.file == nil {
		return nil, false, fs.ErrClosed
	}
	was := l.head.Account
	at := int64(0)
	if account != nil {
		line := appendAccount(nil, account)
		if err := l.write(line, 0); err != nil {
			return nil, false, err
		}
		was = l.head.Account // in a new segment, perhaps
		at = l.end().Size - int64(len(line))
	}
	l.head.Account = at
	if err := l.note(l.head.Reserved); err != nil {
		l.head.Account = was
		return nil, false, err
	}
	l.account = account
	return l.file, was == 0, nil
}

// SetAccount replaces the account of the log in dir, which is not open, as [Log.SetAccount], without
// reading the log. done is false if that takes more: it has no account, is full or must be mended.
func (w *Writer) SetAccount(dir string, account []byte, durable bool) (done bool, err error) {
	l := &Log{w: w, dir: dir}
	if l.claim() != nil || l.file == nil { // Open says why
		return false, nil
	}
	defer safefile.Release(l.file)
	data := make([]byte, mostAccounts)
	n, _ := l.file.ReadAt(data, l.head.Account)
	_, sound, failed := accountAt(data[:n])
	_, err = l.file.ReadAt(data[:1], l.end().Size-1)
	l.full = w.fullOf(l.head)
	if l.head.Account == 0 || !sound || failed != nil || err != nil || data[0] != '\n' || l.end().Size+mostAccounts > l.full {
		return false, nil
	}
	return true, l.SetAccount(account, durable)
}

func appendAccount(dst, account []byte) []byte {
	return append(append(append(dst, accountHead...), account...), "}\n"...)
}

// WriteRoom writes a line of at most RoomSize bytes into a room, which needs none on the
// disk. What was there says nothing until the last byte is written, the first one of the line.
func (l *Log) WriteRoom(line []byte) error {
	l.files.Lock()
	defer l.files.Unlock()
	if l.file == nil {
		return fs.ErrClosed
	}
	if len(l.rooms) == 0 || len(line) > RoomSize {
		return errors.New("there is no room for it")
	}
	at := l.rooms[0]
	l.overwritten.Add(1)
	whole := slices.Concat(line[:len(line)-1], emptyRoom[len(line)-1:])
	if _, err := l.file.WriteAt(whole[1:], at+1); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(whole[:1], at); err != nil {
		return err
	}
	l.rooms = l.rooms[1:]
	return nil
}

// Overwritten is how often something was written, or cut off, before the end of what was written. The header of a segment, which is written over, is not counted.
func (l *Log) Overwritten() uint64 { return l.overwritten.Load() }

// Later has a line written before whatever is written next. The caller bounds them.
func (l *Log) Later(line []byte) {
	l.files.Lock()
	defer l.files.Unlock()
	l.backlog = append(l.backlog, line...)
}

// flush writes the events that wait, in buf if that is large enough.
func (l *Log) flush(buf *[]byte) {
	batch := l.take(true)
	if l.file == nil {
		return
	}
	info, err := os.Lstat(l.end().Path)
	if own, failed := l.file.Stat(); failed == nil {
		l.stale = err != nil || !os.SameFile(info, own) || own.Size() != l.end().Size && !l.spoiled
	}
	n, err := l.add(buf, batch, nil, 0)
	l.requeue(batch, n, err)
}

// take takes the events that wait.
func (l *Log) take(rest bool) []supervisor.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.pending
	l.pending = nil
	l.resize(-l.size)
	if rest {
		l.queued = false
	}
	return batch
}

// requeue puts back the events that could not be written, of which n were, sets the bound, and logs.
func (l *Log) requeue(batch []supervisor.Event, n int, err error) {
	if len(batch) == 0 && err == nil {
		return
	}
	l.mu.Lock()
	var lost uint64
	if err == nil {
		l.limit, l.lost, lost = l.w.o.Queue, 0, l.lost
	} else {
		l.limit = l.w.o.Queue / 16
		for _, e := range batch[n:] {
			l.resize(len(e.Data) + eventCost)
		}
		l.pending = append(batch[n:], l.pending...)
		l.bound()
	}
	l.mu.Unlock()
	switch {
	case err != nil:
		l.failed(err)
	case l.failing:
		l.failing = false
		l.w.log.Info("records are written again", zap.String("dir", l.dir), zap.Uint64("lost", lost))
	case lost > 0:
		l.w.log.Warn("event log too slow", zap.String("dir", l.dir), zap.Uint64("lost", lost))
	}
}

func (l *Log) failed(err error) {
	if !l.failing {
		l.failing = true
		l.w.log.Warn("records not written; the agent goes on without", zap.String("dir", l.dir), zap.Error(err))
	}
}

// add puts events and then lines into the last segment, or further ones, and leaves so many
// rooms. It works in *scratch. n of the events are there after an error, and none of the lines.
func (l *Log) add(scratch *[]byte, batch []supervisor.Event, lines []byte, rooms int) (n int, err error) {
	if len(batch)+len(lines) == 0 {
		return 0, nil
	}
	buf := (*scratch)[:0]
	defer func() { *scratch = buf }()
	put := func(events int) error { // so many are in buf or in the file
		if err := l.put(buf); err != nil {
			return err
		}
		buf, n, l.written = buf[:0], events, l.lastOf(batch[:events])
		return nil
	}
	room := func(size, events int, first uint64) error { // for a line of that size
		used := l.end().Size + int64(len(buf))
		if !l.stale && (used == l.head.Snapshot || used+int64(size) <= l.full) {
			return nil
		}
		if err := put(events); err != nil {
			return err
		}
		return l.turn(first)
	}
	for i, e := range batch {
		if err := room(len(e.Data)+eventCost, i, e.Seq); err != nil {
			return n, err
		}
		buf = appendEvent(buf, e.Seq, e.Data)
		if len(buf) >= chunk {
			if err := put(i + 1); err != nil {
				return n, err
			}
		}
	}
	if len(lines) > 0 {
		if err := room(len(lines)+RoomSize, len(batch), l.lastOf(batch)+1); err != nil {
			return n, err
		}
		buf = append(buf, lines...)
	}
	more := max(0, rooms-len(l.rooms))
	for range more {
		buf = append(buf, emptyRoom...)
	}
	if err := put(len(batch)); err != nil {
		return n, err
	}
	for i := range more {
		l.rooms = append(l.rooms, l.end().Size-int64((more-i)*RoomSize))
	}
	if len(batch) > 0 && l.head.Reserved < l.written+reserve/2 {
		if err := l.note(l.written + reserve); err != nil {
			l.failed(err)
		}
	}
	return n, nil
}

// turn begins a segment for events from first on. Where it cannot, the last one grows, unless
// it is not in its place or has grown too much.
func (l *Log) turn(first uint64) error {
	err := l.rotate(first, false)
	if err == nil || l.stale || l.end().Size > maxSegment/2 {
		return err
	}
	l.w.log.Warn("records: no segment begun", zap.String("dir", l.dir), zap.Error(err))
	l.full = l.end().Size + l.w.o.SegmentSize/4
	return nil
}

// lastOf is the number of the last event once batch is written.
func (l *Log) lastOf(batch []supervisor.Event) uint64 {
	if len(batch) == 0 {
		return l.written
	}
	return batch[len(batch)-1].Seq
}

// put adds whole lines to the last segment after those that wait, all or none.
func (l *Log) put(lines []byte) error {
	if len(l.backlog) > 0 {
		lines = slices.Concat(l.backlog, lines)
	}
	if len(lines) == 0 {
		return nil
	}
	end := l.end()
	if l.spoiled {
		l.overwritten.Add(1)
		if err := l.file.Truncate(end.Size); err != nil {
			return err
		}
		l.spoiled = false
	}
	if _, err := l.file.WriteAt(lines, end.Size); err != nil {
		l.overwritten.Add(1)
		l.spoiled = l.file.Truncate(end.Size) != nil
		return err
	}
	end.Size += int64(len(lines))
	l.backlog = nil
	return nil
}

// note writes the header over, with a number ahead.
func (l *Log) note(reserved uint64) error {
	h := l.head
	h.Reserved = reserved
	if _, err := l.file.WriteAt(h.encode(), 0); err != nil {
		return err
	}
	l.head = h
	return nil
}

// rotate begins a segment, for events from first on, with a snapshot of the last one, and
// lets go of the oldest. With anew it is the first one of another log, with the account alone.
func (l *Log) rotate(first uint64, anew bool) error {
	end := *l.end()
	h := header{Since: l.head.Since, First: first, Reserved: max(l.head.Reserved, first-1+reserve)}
	var kept []byte
	rooms := 0
	if anew {
		h.Since, h.Reserved = end.Number+1, 0
	} else {
		data := make([]byte, end.Size)
		n, err := l.file.ReadAt(data, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		kept, rooms = l.snapshot(parse(data[:n], end.First).lines)
		for len(l.segments) >= l.w.o.Segments { // on a full disk, its room is that of the new one
			if err := os.Remove(l.segments[0].Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			l.segments = l.segments[1:]
		}
	}
	if err := safefile.Mkdir(l.dir); err != nil {
		return err
	}
	s, h, file, err := begin(l.dir, end.Number+1, h, Past{Account: l.account, Lines: kept, Rooms: rooms}, l.account != nil)
	if err != nil {
		return err
	}
	_ = safefile.Release(l.file) // the old one has nothing left to say
	l.file, l.head, l.full = file, h, l.w.fullOf(h)
	l.rooms, l.stale, l.spoiled = nil, false, false
	for i := range rooms {
		l.rooms = append(l.rooms, s.Size-int64((rooms-i)*RoomSize))
	}
	l.segments = append(l.segments, s)
	return nil
}

// reset begins another log in the place of this one, with the account alone.
func (l *Log) reset() error {
	if err := l.rotate(1, true); err != nil {
		return err
	}
	l.segments = l.segments[len(l.segments)-1:]
	l.written, l.first = 0, 0
	l.mu.Lock()
	l.seq = 0
	l.mu.Unlock()
	return l.clear()
}

// Reset forgets all but the account. It is for a log of which nothing was read or written yet.
func (l *Log) Reset() error {
	l.files.Lock()
	defer l.files.Unlock()
	if err := l.reset(); err != nil {
		return fmt.Errorf("reset records %s: %w", l.dir, err)
	}
	return nil
}
