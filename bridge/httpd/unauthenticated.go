package httpd

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// Bounds of what requests without a good key write to the log (SPEC §6.6): so many
// lines in each period, and one that counts the others.
const (
	maxUnauthenticatedLines = 20
	unauthenticatedPeriod   = time.Minute
)

// unauthenticatedLog decides which requests without a good key have a line of their own in
// the log. It is safe for concurrent use.
type unauthenticatedLog struct {
	log *zap.Logger

	mu     sync.Mutex     // guards all below
	timer  *time.Timer    // runs out with the period; nil between periods
	lines  int            // in this period
	others map[string]int // requests without a line, by "ROUTE STATUS": both are of fixed sets
	closed bool
}

func newUnauthenticatedLog(log *zap.Logger) *unauthenticatedLog {
	return &unauthenticatedLog{log: log, others: map[string]int{}}
}

// admit reports whether a request has a line of its own. If not, it is counted.
func (l *unauthenticatedLog) admit(route, status string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true // the server ends: there will be few
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(unauthenticatedPeriod, l.end)
	}
	if l.lines++; l.lines <= maxUnauthenticatedLines {
		return true
	}
	l.others[route+" "+status]++
	return false
}

// end ends a period: it writes the line that counts the requests without one.
func (l *unauthenticatedLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

// close writes what is left. It may be called again.
func (l *unauthenticatedLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.flush()
	l.closed = true
}

// flush is end; mu is held.
func (l *unauthenticatedLog) flush() {
	n := 0
	for _, count := range l.others {
		n += count
	}
	if n > 0 {
		l.log.Warn("requests without a good key had no line each", zap.Dict("data", zap.Int("requests", n), zap.Any("by_route_and_status", l.others)))
	}
	l.timer, l.lines, l.others = nil, 0, map[string]int{}
}
