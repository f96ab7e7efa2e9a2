package broker

import (
	"bytes"
	"regexp"

	"nexus.internal/protocol/redact"
)

// errorScrubber scrubs the errors in an answer that is otherwise a model's. It holds
// each event until it is whole, and a JSON document too: nobody can use them
// before. What is longer than maxErrorBody is judged by its beginning.
type errorScrubber struct {
	secrets redact.Secrets

	held   []byte // of the event that is coming, maxErrorBody at most
	out    []byte
	action action

	size  int  // bytes of the event
	first byte // of the event that is no space; 0 if there is none yet
	line  int  // bytes of the line
	cr    bool // the last byte was a carriage return
}

// action is what becomes of the rest of an event.
type action int

const (
	hold action = iota
	pass        // it is too long, and no error
	drop        // it is too long, and an error
)

// errorPattern finds an error in an event or a document: OpenAI's and Anthropic's
// member, at any depth, Anthropic's type, and the name of the event. What a
// model says cannot look like that, for its quotes are escaped.
var errorPattern = regexp.MustCompile(`"error"\s*:\s*[^\sn]|"(?:type|object|finish_reason)"\s*:\s*"error"|(?:^|[\r\n])event: ?\S*(?:error|failed)`)

// isError reports whether an event is not what a model said: nothing of that is
// outside of JSON.
func isError(event []byte) bool {
	if bytes.IndexByte(event, '{') < 0 {
		return true
	}
	event = redact.UnescapeLetters(event)
	// Few events have these words, and the expression is slow.
	return (bytes.Contains(event, []byte("error")) || bytes.Contains(event, []byte("failed"))) && errorPattern.Match(event)
}

// next returns what may go on of all that came. It is valid until the next
// call, and may be overwritten.
func (s *errorScrubber) next(p []byte) []byte {
	if len(s.secrets) == 0 {
		return p
	}
	s.out = s.out[:0]
	for len(p) > 0 {
		n, whole := s.eventEnd(p)
		s.add(p[:n])
		if whole {
			s.endEvent()
		}
		p = p[n:]
	}
	return s.out
}

// rest is what was held at the end of the answer.
func (s *errorScrubber) rest() []byte {
	s.out = s.out[:0]
	s.endEvent()
	return s.out
}

// eventEnd is how many bytes of p belong to the event, and whether it is whole then:
// by an empty line, or the end of a comment's. A line feed that comes after
// that, for the line ended in both, goes on at once.
func (s *errorScrubber) eventEnd(p []byte) (n int, whole bool) {
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

// add takes bytes of the event.
func (s *errorScrubber) add(p []byte) {
	s.size += len(p)
	if s.action == hold {
		n := min(len(p), maxErrorBody-len(s.held))
		s.held = append(s.held, p[:n]...)
		if p = p[n:]; len(p) == 0 {
			return
		}
		s.action = s.flush()
	}
	if s.action == pass {
		s.out = append(s.out, p...)
	}
}

// flush lets go of what is held, and says what becomes of more.
func (s *errorScrubber) flush() action {
	defer func() { s.held = s.held[:0] }()
	if !isError(s.held) {
		s.out = append(s.out, s.held...)
		return pass
	}
	s.out = append(s.out, s.secrets.Text(string(s.held))...)
	return drop
}

// endEvent ends the event.
func (s *errorScrubber) endEvent() {
	switch {
	case s.action == hold && s.first == 0: // a blank line: there may be millions
		s.out = append(s.out, s.held...)
		s.held = s.held[:0]
	case s.action == hold:
		s.flush()
	case s.action == drop:
		s.out = append(s.out, "\n\n"...)
	}
	s.action, s.size, s.first, s.line = hold, 0, 0, 0
}
