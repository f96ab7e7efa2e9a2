package httpd

import (
	"net/http"
	"sync"
	"time"

	"nexus.internal/bridge/auth"
)

// Of the scrapes of all keys that run at once, which the metrics bound, keys for less have a part (SPEC §7).
const (
	maxScopedScrapes = 3 // of all scoped keys
	maxKeyScrapes    = 2 // of one scoped key
)

// scrapeLimit counts the scrapes of scoped keys that run. The zero value is ready; it is safe for concurrent use.
type scrapeLimit struct {
	mu  sync.Mutex // guards what follows
	all int
	of  map[string]int // by the id of a key
}

// take counts one more scrape for a key, unless a bound forbids it. If it is taken, leave must follow.
func (l *scrapeLimit) take(g auth.Grant) bool {
	if g.Scope == auth.ScopeFull {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxScopedScrapes || l.of[g.ID] >= maxKeyScrapes {
		return false
	}
	if l.of == nil {
		l.of = map[string]int{}
	}
	l.all++
	l.of[g.ID]++
	return true
}

func (l *scrapeLimit) leave(g auth.Grant) {
	if g.Scope == auth.ScopeFull {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[g.ID]--; l.of[g.ID] == 0 {
		delete(l.of, g.ID)
	}
}

// scrape answers GET /metrics (SPEC §6.10).
func (s *Server) scrape(x *request) {
	_ = x.rc.SetReadDeadline(time.Time{})
	_ = x.rc.SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
	if !s.scrapes.take(x.by.Grant) {
		http.Error(x.w, "Limit of concurrent requests of keys that are not full reached, try again later.", http.StatusServiceUnavailable)
		return
	}
	defer s.scrapes.leave(x.by.Grant)
	s.o.Metrics.ServeHTTP(x.w, x.r)
}
