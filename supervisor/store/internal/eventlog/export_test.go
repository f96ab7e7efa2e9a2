package eventlog

// Reserve is how far ahead a log notes a number, for tests.
const Reserve = reserve

// Stall holds the disk until the function it returns is called.
func (l *Log) Stall() (release func()) {
	l.files.Lock()
	return l.files.Unlock
}

// Open reports whether the log has a descriptor.
func (l *Log) Open() bool {
	l.files.Lock()
	defer l.files.Unlock()
	return l.file != nil
}

// Held is what the log holds in memory beyond itself: events that wait.
func (l *Log) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cap(l.pending) + cap(l.spare)
}

// Check reads a segment and writes it again; false if it is none. Good is how
// many bytes of it are sound.
func Check(data []byte, first uint64) (again []byte, good int, ok bool) {
	reserved, _, good, ok := scan(data, first)
	if !ok {
		return nil, 0, false
	}
	again = header(reserved)
	for rest := data[headerSize:good]; len(rest) > 0; {
		n := 0
		for rest[n] != '\n' {
			n++
		}
		seq, event, _ := parseLine(rest[:n])
		again = appendLine(again, seq, event)
		rest = rest[n+1:]
	}
	return again, good, true
}

// Segment makes a segment of events numbered from first.
func Segment(first uint64, events ...string) []byte {
	data := header(first + reserve)
	for i, e := range events {
		data = appendLine(data, first+uint64(i), []byte(e))
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
