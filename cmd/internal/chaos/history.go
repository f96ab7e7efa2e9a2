package chaos

import (
	"bufio"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// History is everything that happened, in the order in which it was learned. It
// is safe for concurrent use.
type History struct {
	began time.Time
	check *Checker

	mu    sync.Mutex // guards the rest
	file  *os.File
	lines *bufio.Writer
	err   error // the first of writing
}

// NewHistory writes to a new file, a JSON object a line, and shows the checker
// every record. The pieces of answers among the events are for the checker
// alone.
func NewHistory(path string, check *Checker) (*History, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &History{began: time.Now(), check: check, file: file, lines: bufio.NewWriter(file)}, nil
}

// nanoseconds are how a duration stands in the file.
var nanoseconds = json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, d time.Duration) error {
	return e.WriteToken(jsontext.Int(int64(d)))
}))

// Add notes a record, and when.
func (h *History) Add(r Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.At = time.Since(h.began)
	h.check.Observe(r)
	if r.Kind == Seen && r.Type == "message_update" {
		return
	}
	line, err := json.Marshal(r, nanoseconds)
	if err == nil {
		_, err = h.lines.Write(append(line, '\n'))
	}
	if h.err == nil {
		h.err = err
	}
}

// missesTurnEnds reports whether the events of an agent have yet to tell how a turn
// ended that was answered.
func (h *History) missesTurnEnds(agent string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.check.missesTurnEnds(agent)
}

// servedUnderAttack reports whether a send of a control agent was answered under
// attack, while the server and its disk were not attacked themselves.
func (h *History) servedUnderAttack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.check.latency(true).Tries > 0
}

// Close writes what is not yet written. The error is the first of any writing.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.err, h.lines.Flush(), h.file.Close())
}
