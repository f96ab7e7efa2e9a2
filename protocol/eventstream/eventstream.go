// Package eventstream reads streams of server-sent events, within bounds.
package eventstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
	"strconv"
	"time"
)

// ErrTooLong says that an event is longer than it may be.
var ErrTooLong = errors.New("an event is too long")

// Event is one event of a stream.
type Event struct {
	Name string // its field event; "" if it has none
	// ID is its field id, by which a broken stream is asked for what follows; nil if it has none.
	ID    *string
	Retry time.Duration // its field retry, how long to wait before that; 0 if it has none
	// Data are its fields data, joined by line feeds; valid until the next event. It is empty if
	// there is none, as after a comment that keeps the connection alive.
	Data []byte
	size int // of its lines, in bytes
}

// Read reads a text/event-stream (WHATWG HTML, "Server-sent events"): an event for each blank
// line. What follows the last blank line is no event. The sequence ends without an error at the
// end of the body, and else with the error of reading, or ErrTooLong where a line, or all lines of
// one event but comments, have more than limit bytes.
func Read(body io.Reader, limit int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := lineReader{reader: bufio.NewReaderSize(body, 16<<10), limit: limit}
		var event Event
		for first := true; ; first = false {
			line, err := lines.next()
			if first {
				line = bytes.TrimPrefix(line, []byte("\uFEFF")) // a byte order mark
			}
			if err == nil && len(line) > 0 {
				err = event.add(line, limit)
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(Event{}, err)
				return
			case len(line) > 0:
				continue
			}
			event.Data = bytes.TrimSuffix(event.Data, []byte("\n"))
			if !yield(event, nil) {
				return
			}
			event = Event{Data: event.Data[:0]}
		}
	}
}

// add adds a line that is not blank. A comment is a field without a name.
func (e *Event) add(line []byte, limit int) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	if len(name) > 0 {
		e.size += len(line) + 1
	}
	if e.size > limit {
		return ErrTooLong
	}
	switch string(name) {
	case "event":
		e.Name = string(value)
	case "data":
		e.Data = append(append(e.Data, value...), '\n')
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			e.ID = new(string(value))
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
			e.Retry = time.Duration(ms) * time.Millisecond
		}
	}
	return nil
}

// lineReader splits a stream into lines that end with LF, CR or CRLF.
type lineReader struct {
	reader *bufio.Reader
	limit  int // of a line, in bytes
	line   []byte
	cr     bool // the last line ended with CR: a LF right after it is part of its end
}

// next returns the next line without its end, valid until the next call. It does
// not wait for what follows a CR. Bytes without an end of line are no line.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		if _, err := l.reader.Peek(1); err != nil {
			return nil, err
		}
		chunk, _ := l.reader.Peek(l.reader.Buffered()) // cannot fail: it is there
		if l.cr && chunk[0] == '\n' {
			l.cr = false
			_, _ = l.reader.Discard(1)
			continue
		}
		l.cr = false
		end := bytes.IndexAny(chunk, "\r\n")
		part := chunk
		if end >= 0 {
			part = chunk[:end]
		}
		if len(l.line)+len(part) > l.limit {
			return nil, ErrTooLong
		}
		l.line = append(l.line, part...)
		if end < 0 {
			_, _ = l.reader.Discard(len(chunk))
			continue
		}
		l.cr = chunk[end] == '\r'
		_, _ = l.reader.Discard(end + 1)
		return l.line, nil
	}
}
