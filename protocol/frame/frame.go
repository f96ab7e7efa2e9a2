// Package frame splits a byte stream into lines and joins lines into one, with
// a bound on both, and without ever losing its place.
//
//	r := frame.NewReader(stdin)
//	for {
//		line, err := r.Next()
//		if _, tooLarge := errors.AsType[*frame.TooLargeError](err); tooLarge {
//			continue // one line was passed over; the stream goes on
//		}
//		if err != nil {
//			break // io.EOF, or the stream's own error
//		}
//	}
//
// A Reader belongs to one goroutine; a Writer may be shared. Neither starts a
// goroutine. It refuses to interpret what a line holds. See SPEC §3.2.
package frame

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// MaxPayload is the largest line that is read, newline excluded, in bytes
	// (SPEC §3.2).
	MaxPayload = 1 << 20
	// MaxWritten is the largest line that is written, newline included, in
	// bytes: one less of payload than what is read, so that a reader that
	// counts the newline accepts it too.
	MaxWritten = 1 << 20

	startSize = 4 << 10  // bytes of a fresh buffer
	growth    = 4        // each time a line does not fit: 1.4 MiB in all for the largest
	keepSize  = 64 << 10 // bytes; a larger buffer is given up once it is empty

	maxEmptyReads = 100 // in a row, before a stream counts as broken
)

// TooLargeError says that a line was longer than MaxPayload, or than the limit of its Reader. It is reported
// once, as soon as that is known; the rest of the line is passed over by the
// next call of Next, in constant memory. The stream stays usable.
type TooLargeError struct {
	Limit int // bytes, newline excluded
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("frame exceeds the limit of %d bytes", e.Limit)
}

// Source is a stream that is read into a buffer which is needed only while there is something
// to read: a thousand streams on which nothing comes have none.
type Source interface {
	// ReadInto is Read into what Take returns. It calls Give before it waits, and Take again
	// after that.
	ReadInto(room Room) (n int, err error)
}

// Room is where a Source reads into.
type Room interface {
	Take() []byte // at least one byte
	Give()
}

// Reader reads lines from a stream. Its memory is at most twice the limit; if the stream is a
// [Source], it has none while it waits for a line to begin. It belongs to one goroutine.
type Reader struct {
	src      io.Reader
	lazy     Source // src, if it is one, else nil
	limit    int    // of a line, newline excluded, in bytes
	buf      []byte // buf[start:end] is read and not yet handed out
	start    int
	end      int
	scanned  int   // bytes after start known to hold no newline
	skipping bool  // inside a line that was too large
	err      error // of src, reported when the buffer is used up
}

// NewReader returns a Reader of src.
func NewReader(src io.Reader) *Reader { return NewLimitedReader(src, MaxPayload) }

// NewLimitedReader returns a Reader of src whose lines have at most limit bytes, without the newline:
// for the lines of a protocol of others. limit is at least 4 KiB.
func NewLimitedReader(src io.Reader, limit int) *Reader {
	lazy, _ := src.(Source)
	return &Reader{src: src, lazy: lazy, limit: limit}
}

// buffers are those of startSize that no Reader of a Source needs.
var buffers = sync.Pool{New: func() any { return new([startSize]byte) }}

// room is a Reader as its Source sees it.
type room Reader

// Take implements [Room].
func (r *room) Take() []byte {
	if r.buf == nil {
		r.buf = buffers.Get().(*[startSize]byte)[:]
	}
	return r.buf[r.end:]
}

// Give implements [Room].
func (r *room) Give() {
	if r.start < r.end {
		return
	}
	if len(r.buf) == startSize {
		buffers.Put((*[startSize]byte)(r.buf))
	}
	r.buf, r.start, r.end, r.scanned = nil, 0, 0, 0
}

func (r *Reader) read() (n int, err error) {
	if r.lazy != nil {
		return r.lazy.ReadInto((*room)(r))
	}
	return r.src.Read(r.buf[r.end:])
}

// Next returns the next line that is not blank, without its newline and
// without one carriage return before that. The slice is valid until the next
// call. What stands after the last newline of a stream is a line too. Errors:
// *TooLargeError (go on), io.EOF, or the error of the stream (both final; a
// line that an error of the stream cut off is dropped).
func (r *Reader) Next() ([]byte, error) {
	for {
		if line, ok := r.line(); ok {
			if r.skipping {
				r.skipping = false
				continue
			}
			line = bytes.TrimSuffix(line, []byte{'\r'})
			if len(line) > r.limit {
				return nil, &TooLargeError{Limit: r.limit}
			}
			if len(bytes.Trim(line, " \t\r")) == 0 {
				continue
			}
			return line, nil
		}
		if r.skipping {
			r.start, r.end, r.scanned = 0, 0, 0
		} else if r.Buffered() > r.limit+1 || (r.Buffered() == r.limit+1 && r.buf[r.end-1] != '\r') {
			r.skipping = true
			return nil, &TooLargeError{Limit: r.limit}
		}
		if r.err != nil {
			return r.last()
		}
		r.fill()
	}
}

// line takes the next whole line out of the buffer.
func (r *Reader) line() ([]byte, bool) {
	i := bytes.IndexByte(r.buf[r.start+r.scanned:r.end], '\n')
	if i < 0 {
		r.scanned = r.Buffered()
		return nil, false
	}
	i += r.start + r.scanned
	line := r.buf[r.start:i]
	r.start, r.scanned = i+1, 0
	return line, true
}

// last hands out what stands after the last newline, then the stream's error.
// Of a line that was too large nothing is left in the buffer by then.
func (r *Reader) last() ([]byte, error) {
	line := bytes.TrimSuffix(r.buf[r.start:r.end], []byte{'\r'})
	r.start, r.end, r.scanned = 0, 0, 0
	if errors.Is(r.err, io.EOF) && len(bytes.Trim(line, " \t\r")) > 0 {
		return line, nil
	}
	return nil, r.err
}

// Buffered is how many bytes were read of the stream and not handed out yet.
func (r *Reader) Buffered() int { return r.end - r.start }

// fill reads some bytes or the stream's error, making room first.
func (r *Reader) fill() {
	switch {
	case r.Buffered() == 0:
		r.start, r.end = 0, 0
		if len(r.buf) > keepSize {
			r.buf = nil
		}
	case r.end == len(r.buf) && r.start > 0:
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if r.end == len(r.buf) && (r.end > 0 || r.lazy == nil) {
		size := max(growth*len(r.buf), startSize)
		if size >= r.limit {
			size = r.limit + len("\r\n")
		}
		grown := make([]byte, size)
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	for range maxEmptyReads {
		n, err := r.read()
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// Writer writes lines to a stream. It is safe for concurrent use: lines never
// mix.
type Writer struct {
	mu  sync.Mutex // one Write at a time
	dst io.Writer
}

// lines are the buffers of Writers, of at most keepSize bytes.
var lines = sync.Pool{New: func() any { return new([]byte) }}

// NewWriter returns a Writer to dst.
func NewWriter(dst io.Writer) *Writer { return &Writer{dst: dst} }

// Write writes each payload and a newline, all in one call of the destination's Write.
// It returns *TooLargeError, and writes nothing, if a payload and its newline exceed
// MaxWritten; an error of the destination may have written a part of the lines
// and ends the stream. A payload with a newline in it is a bug of the caller's
// and panics.
func (w *Writer) Write(payloads ...[]byte) error {
	for _, payload := range payloads {
		if len(payload)+1 > MaxWritten {
			return &TooLargeError{Limit: MaxWritten - 1}
		}
		if bytes.IndexByte(payload, '\n') >= 0 {
			panic("frame: payload holds a newline")
		}
	}
	kept := lines.Get().(*[]byte)
	buf := (*kept)[:0]
	for _, payload := range payloads {
		buf = append(append(buf, payload...), '\n')
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.dst.Write(buf)
	if cap(buf) <= keepSize {
		*kept = buf
		lines.Put(kept)
	}
	return err
}
