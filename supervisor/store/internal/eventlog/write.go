package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
)

// This file is how a log is written. All methods want Log.files.

// write puts events into the last segment, or further ones. n of them are there
// after an error.
func (l *Log) write(batch []supervisor.Event, buf []byte) (n int, _ []byte, err error) {
	encoded := 0 // of batch, those in buf included
	put := func() error {
		if encoded == n {
			return nil
		}
		if err := l.put(buf); err != nil {
			return err
		}
		n = encoded
		l.written = batch[n-1].Seq
		buf = buf[:0]
		return nil
	}
	for _, e := range batch {
		before := len(buf)
		buf = appendLine(buf, e.Seq, e.Data)
		line := int64(len(buf) - before)
		used := l.used() + int64(before)
		if l.stale || len(l.segments) == 0 || used > headerSize && used+line > l.w.o.SegmentSize {
			// The line begins a segment; those before it end one.
			buf = buf[:before]
			if err := put(); err != nil {
				return n, buf, err
			}
			if err := l.rotate(e.Seq); err != nil {
				return n, buf, err
			}
			buf = appendLine(buf[:0], e.Seq, e.Data)
		}
		encoded++
		if len(buf) >= chunk {
			if err := put(); err != nil {
				return n, buf, err
			}
		}
	}
	if err := put(); err != nil {
		return n, buf, err
	}
	if l.reserved < l.written+reserve/2 {
		return n, buf, l.note(l.written + reserve)
	}
	return n, buf, nil
}

// used is the size of the last segment.
func (l *Log) used() int64 {
	if len(l.segments) == 0 {
		return 0
	}
	return l.segments[len(l.segments)-1].size
}

// put adds whole lines to the last segment, all or none.
func (l *Log) put(lines []byte) error {
	if err := l.openFile(); err != nil {
		return err
	}
	end := &l.segments[len(l.segments)-1]
	if _, err := l.file.WriteAt(lines, end.size); err != nil {
		if cut := l.file.Truncate(end.size); cut != nil {
			l.stale = true
		}
		return err
	}
	end.size += int64(len(lines))
	return nil
}

// note writes a number ahead over the one in the last segment.
func (l *Log) note(reserved uint64) error {
	if err := l.openFile(); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(header(reserved), 0); err != nil {
		return err
	}
	l.reserved = reserved
	return nil
}

// openFile opens the last segment, unless it is open. One that somebody took
// away or changed is not written again.
func (l *Log) openFile() error {
	if l.file != nil {
		return nil
	}
	end := l.segments[len(l.segments)-1]
	file, err := safefile.Open(end.path(l.dir), os.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) {
		l.stale = true
	}
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Size() != end.size {
		l.stale = true
		err = fmt.Errorf("%s has %d bytes, want %d: somebody else changed it", end.path(l.dir), info.Size(), end.size)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file = file
	return nil
}

// rotate begins a segment, for numbers from first on, and lets go of the oldest.
func (l *Log) rotate(first uint64) error {
	l.closeFile()
	// A stale segment that was empty is in the way of one for the same numbers.
	if n := len(l.segments); n > 0 && l.segments[n-1].first >= first {
		if err := os.Remove(l.segments[n-1].path(l.dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.segments = l.segments[:n-1]
	}
	for len(l.segments) >= max(l.w.o.Segments, 2) {
		if err := os.Remove(l.segments[0].path(l.dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.segments = l.segments[1:]
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	s := segment{first: first, size: headerSize}
	file, err := os.OpenFile(s.path(l.dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	reserved := max(l.reserved, first+reserve)
	if _, err := file.Write(header(reserved)); err != nil {
		return errors.Join(err, file.Close(), os.Remove(s.path(l.dir)))
	}
	l.segments = append(l.segments, s)
	l.file, l.reserved, l.stale = file, reserved, false
	return nil
}

func (l *Log) closeFile() {
	if l.file != nil {
		_ = l.file.Close() // a plain file has nothing left to say
		l.file = nil
	}
}
