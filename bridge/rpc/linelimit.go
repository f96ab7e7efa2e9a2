package rpc

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
)

// Bounds of the lines that requests and host calls write to the log (SPEC §6.6): so many in
// each period, and one that counts the others. Full keys have no bound.
const (
	unauthenticatedLines = 20  // of all requests without a good key together
	limitedLines         = 600 // of a key for less, and of an agent with all that it created
	linePeriod           = time.Minute
)

// LineLimit decides which requests and host calls have lines of their own in the log. It is
// safe for concurrent use.
type LineLimit struct {
	log *zap.Logger

	mu     sync.Mutex            // guards all below
	timer  *time.Timer           // runs out with the period; nil between periods
	by     map[string]*lineCount // in this period, by principal; "" is nobody
	closed bool
}

// lineCount is what one principal has in a period.
type lineCount struct {
	lines  int
	others map[string]int // requests and calls without a line, by kind and status: both are of fixed sets
}

// NewLineLimit returns a LineLimit whose lines that count go to log. Close it.
func NewLineLimit(log *zap.Logger) *LineLimit {
	return &LineLimit{log: log, by: map[string]*lineCount{}}
}

// Request reports whether a request has its n lines. If not, it is counted by what.
func (l *LineLimit) Request(by auth.Grant, n int, what string) bool {
	switch {
	case by.ID == "":
		return l.admit("", unauthenticatedLines, n, what)
	case by.Scope != auth.ScopeFull:
		return l.admit("key "+by.ID, limitedLines, n, what)
	default:
		return true
	}
}

// hostCall is Request for a call of an agent, whose tree has that root.
func (l *LineLimit) hostCall(root, what string) bool {
	return l.admit("agent "+root, limitedLines, 1, what)
}

func (l *LineLimit) admit(who string, most, n int, what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true // the server ends: there will be few
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(linePeriod, l.end)
	}
	c := l.by[who]
	if c == nil {
		c = &lineCount{others: map[string]int{}}
		l.by[who] = c
	}
	if c.lines+n <= most {
		c.lines += n
		return true
	}
	c.others[what]++
	return false
}

// end ends a period: it writes the lines that count.
func (l *LineLimit) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

// Close writes what is left. It may be called again.
func (l *LineLimit) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.flush()
	l.closed = true
}

// flush is end; mu is held.
func (l *LineLimit) flush() {
	for who, c := range l.by {
		n := 0
		for _, count := range c.others {
			n += count
		}
		if n == 0 {
			continue
		}
		message, data := "requests without a good key had no line each", []zap.Field{zap.Int("requests", n), zap.Any("by_route_and_status", c.others)}
		if who != "" {
			message, data = "requests had no line each", append(data, zap.String("principal", who))
		}
		l.log.Warn(message, zap.Dict("data", data...))
	}
	l.timer, l.by = nil, map[string]*lineCount{}
}
