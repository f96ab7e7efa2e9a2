package broker

import (
	"bytes"
	"regexp"

	"nexus.internal/protocol/redact"
)

// sieve scrubs the errors in an answer that is otherwise a model's. It holds
// each event until it is whole, and a JSON document too: nobody can use them
// before. What is longer than maxErrorBody is judged by its beginning.
type sieve struct {
	secrets redact.Secrets

	held []byte // of the event that is coming, maxErrorBody at most
	out  []byte
	fate fate

	size  int  // bytes of the event
	first byte // of the event that is no space; 0 if there is none yet
	line  int  // bytes of the line
	cr    bool // the last byte was a carriage return
}

// fate is what becomes of the rest of an event.
type fate int

const (
	hold fate = iota
	pass      // it is too long, and no error
	drop      // it is too long, and an error
)

// tellsError finds an error in an event or a document: OpenAI's and Anthropic's
// member, at any depth, Anthropic's type, and the name of the event. What a
// model says cannot look like that, for its quotes are escaped.
var tellsError = regexp.MustCompile(`"error"\s*:\s*[^\sn]|"(?:type|object|finish_reason)"\s*:\s*"error"|(?:^|[\r\n])event: ?\S*(?:error|failed)`)

// isError reports whether an event is not what a model said: nothing of that is
// outside of JSON.
func isError(event []byte) bool {
	if bytes.IndexByte(event, '{') < 0 {
		return true
	}
	event = redact.Letters(event)
	// Few events have these words, and the expression is slow.
	return (bytes.Contains(event, []byte("error")) || bytes.Contains(event, []byte("failed"))) && tellsError.Match(event)
}

// next returns what may go on of all that came. It is valid until the next
// call, and may be overwritten.
func (s *sieve) next(p []byte) []byte {
	if len(s.secrets) == 0 {
		return p
	}
	s.out = s.out[:0]
	for len(p) > 0 {
		n, whole := s.find(p)
		s.take(p[:n])
		if whole {
			s.end()
		}
		p = p[n:]
	}
	return s.out
}

// rest is what was held at the end of the answer.
func (s *sieve) rest() []byte {
	s.out = s.out[:0]
	s.end()
	return s.out
}

// find is how many bytes of p belong to the event, and whether it is whole then:
// by an empty line, or the end of a comment's. A line feed that comes after
// that, for the line ended in both, goes on at once.
func (s *sieve) find(p []byte) (n int, whole bool) {
	for i, c := range p {
		switch {
		case s.first == '{' || s.first == '[': // no event: a document ends with the answer
			return len(p), false
		case c == '\n' && s.cr:
			s.cr = false
			if s.size+i == 0 {
				return 1, true
			}
		case c == '\n' || c == '\r':
			s.cr = c == '\r'
			if s.line == 0 || s.first == ':' && s.size+i == s.line {
				return i + 1, true
			}
			s.line = 0
		default:
			s.cr = false
			s.line++
			if s.first == 0 && c != ' ' && c != '\t' {
				s.first = c
			}
		}
	}
	return len(p), false
}

// take takes bytes of the event.
func (s *sieve) take(p []byte) {
	s.size += len(p)
	if s.fate == hold {
		n := min(len(p), maxErrorBody-len(s.held))
		s.held = append(s.held, p[:n]...)
		if p = p[n:]; len(p) == 0 {
			return
		}
		s.fate = s.judge()
	}
	if s.fate == pass {
		s.out = append(s.out, p...)
	}
}

// judge lets go of what is held, and says what becomes of more.
func (s *sieve) judge() fate {
	defer func() { s.held = s.held[:0] }()
	if !isError(s.held) {
		s.out = append(s.out, s.held...)
		return pass
	}
	s.out = append(s.out, s.secrets.Text(string(s.held))...)
	return drop
}

// end ends the event.
func (s *sieve) end() {
	switch s.fate {
	case hold:
		s.judge()
	case drop:
		s.out = append(s.out, "\n\n"...)
	case pass:
	}
	s.fate, s.size, s.first, s.line = hold, 0, 0, 0
}
