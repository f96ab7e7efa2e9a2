package mcp

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/textcut"
)

const (
	maxLogLine = 500     // bytes
	maxLogged  = 100     // lines in a minute
	maxTail    = 1 << 10 // bytes, of stderr in an error
)

// stderr takes what a server writes there: into the log, bounded, and its end
// into the error that tells of the server's.
type stderr struct {
	server Server
	log    *zap.Logger

	mu     sync.Mutex // guards all below
	line   []byte     // unfinished, at most maxLogLine
	tail   []byte     // at most maxTail
	since  time.Time  // the minute began
	logged int        // in it
}

func (s *stderr) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(s.tail, p[max(0, len(p)-maxTail):]...)
	s.tail = append(s.tail[:0], s.tail[max(0, len(s.tail)-maxTail):]...)
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		s.line = append(s.line, part[:min(len(part), maxLogLine-len(s.line))]...)
		if ended {
			s.flush()
		}
		rest = after
	}
	return len(p), nil
}

// flush logs a line.
func (s *stderr) flush() {
	text := strings.TrimSpace(strings.ToValidUTF8(string(s.line), "\uFFFD"))
	s.line = s.line[:0]
	if now := time.Now(); now.Sub(s.since) > time.Minute {
		s.since, s.logged = now, 0
	}
	s.logged++
	switch {
	case text == "" || s.logged > maxLogged+1:
	case s.logged > maxLogged:
		s.log.Info("mcp server says more than is logged")
	default:
		s.log.Info("mcp server says", zap.String("text", s.server.clean(text)))
	}
}

// end is what was written last, in one line; "" if nothing was.
func (s *stderr) end() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.ToValidUTF8(string(textcut.Whole(s.tail)), "\uFFFD")
	return s.server.clean(strings.Join(strings.Fields(text), " "))
}
