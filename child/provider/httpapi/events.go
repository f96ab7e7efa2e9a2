package httpapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// maxEvent bounds one line of a stream, and all lines of one event but comments,
// in bytes.
const maxEvent = 32 << 20

// Event is one event of a stream.
type Event struct {
	Name string // its field event; "" if it has none
	Data []byte // its fields data, joined by line feeds; never empty; valid until the next event
	size int    // of its lines, in bytes
}

// events reads a text/event-stream (WHATWG HTML, "Server-sent events"). Events
// without data and the fields id and retry are passed over: a broken stream is
// asked for anew. What follows the last blank line is no event. The sequence ends
// without an error at the end of the body, and else with the error of reading, or
// a *MalformedError where a line or an event is longer than maxEvent.
func events(body io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := lineReader{reader: bufio.NewReaderSize(body, 16<<10)}
		var event Event
		for first := true; ; first = false {
			line, err := lines.next()
			if first {
				line = bytes.TrimPrefix(line, []byte("\uFEFF")) // a byte order mark
			}
			if err == nil && len(line) > 0 {
				err = event.add(line)
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
			if len(event.Data) > 0 && !yield(event, nil) {
				return
			}
			event = Event{Data: event.Data[:0]}
		}
	}
}

// add adds a line that is not blank. A comment is a field without a name.
func (e *Event) add(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	if len(name) > 0 {
		e.size += len(line) + 1
	}
	if e.size > maxEvent {
		return errLongEvent
	}
	switch string(name) {
	case "event":
		e.Name = string(value)
	case "data":
		e.Data = append(append(e.Data, value...), '\n')
	}
	return nil
}

var errLongEvent = &MalformedError{Problem: fmt.Sprintf("it has more than %d MiB", maxEvent>>20)}

// lineReader splits a stream into lines that end with LF, CR or CRLF.
type lineReader struct {
	reader *bufio.Reader
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
		if len(l.line)+len(part) > maxEvent {
			return nil, errLongEvent
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
