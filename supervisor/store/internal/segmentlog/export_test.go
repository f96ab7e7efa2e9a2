package segmentlog

import "bytes"

// Reserve is how far ahead a log notes a number, for tests.
const Reserve = reserve

// Stall holds the disk until the function it returns is called.
func (l *Log) Stall() (release func()) {
	l.files.Lock()
	return l.files.Unlock
}

// Held is what the log holds in memory beyond itself: events that wait.
func (l *Log) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cap(l.pending)
}

// Held is how large the buffer of the Writer is; its goroutine rests.
func (w *Writer) Held() int { return cap(w.buf) }

// Abandon gives the lock up, as the end of a process does.
func (l *Log) Abandon() {
	l.files.Lock()
	defer l.files.Unlock()
	l.file.Close()
	l.file = nil
}

// Check reads a segment, and writes it and what it is read as again; false if it is none.
func Check(data []byte) (again []byte, lines [][]byte, size int64, ok bool) {
	var h header
	if h.decode(data) != nil {
		return nil, nil, 0, false
	}
	c := parse(data, h.First)
	again = h.encode()
	for line := range bytes.Lines(data[headerSize:c.size]) {
		seq, event, ok := parseEvent(bytes.TrimSuffix(line, []byte("\n")))
		if ok {
			line = appendEvent(nil, seq, event)
		}
		again = append(again, line...)
	}
	return again, c.lines, c.size, true
}

// Whole makes a segment of events numbered from first.
func Whole(first uint64, events ...string) []byte {
	data := header{Since: 1, First: first, Snapshot: headerSize, Reserved: first + reserve}.encode()
	for i, e := range events {
		data = appendEvent(data, first+uint64(i), []byte(e))
	}
	return data
}

// Dir is where the log lies.
func (l *Log) Dir() string { return l.dir }

// Queued reports whether the Writer has yet to look at the log.
func (l *Log) Queued() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued
}

// Waiting is how many bytes wait in all queues.
func (w *Writer) Waiting() int64 { return w.waiting.Load() }
