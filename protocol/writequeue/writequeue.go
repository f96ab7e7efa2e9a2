// Package writequeue writes to a stream that nobody may be reading, without making
// those wait who cannot afford to.
//
//	out := writequeue.New(stream, writequeue.Bounds{Pieces: 1024, Bytes: 8 << 20})
//	out.Send(frame) // waits until it is written
//	out.SendFrom(f) // the same for the frames that f makes, together
//	out.Post(frame) // never waits
//	<-out.Close()   // all that was posted is written
//
// A Writer is safe for concurrent use. Each piece is one call of Write, except that those
// of one SendFrom share one, and the pieces of one goroutine keep their order. What is posted is written at once
// where the stream is known to have room; else it waits in a bounded queue,
// which a goroutine of its own or the next Send empties. That goroutine lives
// no longer than the queue; Close tells when it has ended. It refuses to look
// into what it writes. See SPEC.md §3.4.
package writequeue

import (
	"bytes"
	"sync"
)

// Stream is where pieces are written.
type Stream interface {
	// Write writes pieces, in one write if it can, and may block. It is called by one
	// goroutine at a time and must not keep the slices.
	Write(pieces ...[]byte) error
	// Ready reports whether Write would take n bytes now without blocking: see [Poller].
	Ready(n int) bool
	// Lost makes the piece that tells of n lost ones. It is written once there
	// is room again.
	Lost(n int) []byte
	// Failed is called once, with the first error of Write. All that waits is
	// dropped then, and so is what comes. It must not wait.
	Failed(err error)
}

// Bounds are how much may wait. A piece beyond them is lost.
type Bounds struct{ Pieces, Bytes int }

// Writer writes pieces in order.
type Writer struct {
	out   Stream
	most  Bounds
	token chan struct{} // holds one while somebody writes; a channel, as it is waited for in line

	mu       sync.Mutex // guards all below; never held while writing
	waiting  [][]byte   // at most most.Pieces; what comes beyond is lost
	bytes    int        // of what waits, at most most.Bytes
	lost     int        // pieces since the last that was written
	draining bool       // a goroutine will write what waits
	failed   bool
	closed   bool
	done     chan struct{} // closed when closed is set and no goroutine is left
}

// New returns a Writer.
func New(out Stream, most Bounds) *Writer {
	return &Writer{out: out, most: most, token: make(chan struct{}, 1), done: make(chan struct{})}
}

// Send writes what waits and then the piece. It returns when both are written,
// or the stream has failed.
func (w *Writer) Send(piece []byte) {
	w.token <- struct{}{}
	w.flush()
	w.write(piece)
	<-w.token
}

// SendFrom is Send of the pieces that f makes, in one call of Write. f is called after all
// that waits is written: what is sent or posted from then on comes after its pieces. f must
// not use the Writer.
func (w *Writer) SendFrom(f func() [][]byte) {
	w.token <- struct{}{}
	w.flush()
	w.write(f()...)
	<-w.token
}

// Post writes the piece at once if that takes no waiting, else it leaves a copy
// to others. It is lost if too much waits already, and after Close.
func (w *Writer) Post(piece []byte) {
	if w.writeNow(piece) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.failed || w.closed:
		return
	case len(w.waiting) >= w.most.Pieces || w.bytes+len(piece) > w.most.Bytes:
		w.lost++
	default:
		w.waiting = append(w.waiting, bytes.Clone(piece))
		w.bytes += len(piece)
	}
	if !w.draining {
		w.draining = true
		go w.drain()
	}
}

// writeNow writes the piece if nothing waits, nobody writes and there is room.
func (w *Writer) writeNow(piece []byte) bool {
	if w.busy() {
		return false
	}
	select {
	case w.token <- struct{}{}:
	default:
		return false
	}
	defer func() { <-w.token }()
	if w.busy() || !w.out.Ready(len(piece)) {
		return false
	}
	w.write(piece)
	return true
}

// busy reports whether a piece has to wait in line, or for nothing.
func (w *Writer) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining || w.failed || w.closed
}

// Close takes no more posts. The channel is closed once all that waited is
// written, or cannot be.
func (w *Writer) Close() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		if !w.draining {
			close(w.done)
		}
	}
	return w.done
}

// drain writes what waits, until nothing does.
func (w *Writer) drain() {
	for {
		w.token <- struct{}{}
		w.flush()
		<-w.token
		if w.drained() {
			return
		}
	}
}

// drained ends the draining if there is nothing left for it.
func (w *Writer) drained() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 || w.lost > 0 {
		return false
	}
	w.draining = false
	if w.closed {
		close(w.done)
	}
	return true
}

// flush writes what waits. The caller has the token.
func (w *Writer) flush() {
	for piece := w.next(); piece != nil; piece = w.next() {
		w.write(piece)
	}
}

// next takes the next piece; nil if there is none.
func (w *Writer) next() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 {
		piece := w.waiting[0]
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
		w.bytes -= len(piece)
		return piece
	}
	w.waiting = nil
	lost := w.lost
	w.lost = 0
	if lost == 0 {
		return nil
	}
	return w.out.Lost(lost)
}

// write writes pieces together, unless the stream has failed. The caller has the
// token.
func (w *Writer) write(pieces ...[]byte) {
	w.mu.Lock()
	failed := w.failed
	w.mu.Unlock()
	if failed {
		return
	}
	err := w.out.Write(pieces...)
	if err == nil {
		return
	}
	w.mu.Lock()
	w.failed, w.waiting, w.bytes, w.lost = true, nil, 0, 0
	w.mu.Unlock()
	w.out.Failed(err)
}
