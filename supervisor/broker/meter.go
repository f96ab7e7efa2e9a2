package broker

import (
	"bytes"

	"github.com/tidwall/gjson"
)

const (
	// bytesPerToken is how many bytes of text count as a token where nobody
	// counted.
	bytesPerToken = 4
	// maxBlob is how many tokens an image counts as at most, however long it is
	// written: vendors scale what is larger.
	maxBlob = 1600
	// maxUsage bounds a usage object that is kept to be read, in bytes.
	maxUsage = 16 << 10
	// maxCount bounds one count of a usage object, in tokens: what is more was
	// made up.
	maxCount = 1 << 32
)

// meter reads the usage off an answer that passes by. It holds no more than one
// usage object.
type meter struct {
	scanner scanner
	events  bool // of text/event-stream
	prefix  int  // bytes of "data:" that this line began with; -1 for another line
	end     int  // line feeds in a row

	found Usage
	final bool // found has the output as a whole
}

// dataField begins the lines of an event stream that have a value.
const dataField = "data:"

// Write takes the next bytes. It never fails.
func (m *meter) Write(p []byte) (int, error) {
	if m.scanner.usage == nil {
		m.scanner.usage = m.count
	}
	if !m.events {
		m.scanner.write(p)
		return len(p), nil
	}
	for rest := p; len(rest) > 0; {
		if m.prefix == len(dataField) {
			i := bytes.IndexAny(rest, "\r\n")
			if i < 0 {
				m.scanner.write(rest)
				break
			}
			m.scanner.write(rest[:i])
			rest = rest[i:]
		}
		m.line(rest[0])
		rest = rest[1:]
	}
	return len(p), nil
}

// line takes a byte that is not part of a value.
func (m *meter) line(c byte) {
	switch {
	case c == '\n':
		if m.end++; m.end > 1 { // the event is over, whole or not
			m.scanner.reset()
		}
		m.prefix = 0
	case c == '\r':
		m.prefix = 0
	default:
		m.end = 0
		if m.prefix >= 0 && m.prefix < len(dataField) && dataField[m.prefix] == c {
			m.prefix++
		} else {
			m.prefix = -1
		}
	}
}

// count takes a usage object. Services that send several send sums. That of
// Anthropic's message_start is inside the message, and its output is not the
// last word.
func (m *meter) count(raw []byte, in member) {
	if !gjson.ValidBytes(raw) {
		return
	}
	u := gjson.ParseBytes(raw)
	number := func(paths ...string) (n uint64, ok bool) {
		for _, path := range paths {
			if v := u.Get(path); v.Type == gjson.Number && v.Num >= 0 {
				return uint64(min(v.Num, maxCount)), true
			}
		}
		return 0, false
	}
	var now Usage
	var has bool
	if now.Input, has = number("prompt_tokens"); has { // OpenAI: what was cached is part of it
		now.CacheRead, _ = number("prompt_tokens_details.cached_tokens")
	} else if now.Input, has = number("input_tokens"); has {
		var inside bool
		if now.CacheRead, inside = number("input_tokens_details.cached_tokens"); !inside { // Anthropic: it is not
			now.CacheRead, _ = number("cache_read_input_tokens")
			now.CacheCreation, _ = number("cache_creation_input_tokens")
			now.Input += now.CacheRead
		}
	}
	now.Input -= min(now.Input, now.CacheRead)
	now.Output, has = number("completion_tokens", "output_tokens")
	if has && in != message {
		m.final = true
	}
	m.found.Input = max(m.found.Input, now.Input)
	m.found.Output = max(m.found.Output, now.Output)
	m.found.CacheRead = max(m.found.CacheRead, now.CacheRead)
	m.found.CacheCreation = max(m.found.CacheCreation, now.CacheCreation)
}

// sum is what the request used, by the service's count, and by ours for what
// it did not count. asked is the estimate of the request.
func (m *meter) sum(asked uint64) Usage {
	u := m.found
	if u.Input+u.CacheRead+u.CacheCreation == 0 {
		u.Input, u.Estimated = asked, 1
	}
	if !m.final {
		u.Output, u.Estimated = max(u.Output, m.scanner.textTokens()), 1
	}
	return u
}

// member is a member of an answer that may hold a usage object.
type member int

const (
	other    member = iota
	message         // of Anthropic's message_start
	response        // of OpenAI's response.completed
)

// scanner walks JSON as it comes, in any pieces, and keeps nothing of it but
// the usage objects at its top and in those members. What is not JSON makes it
// find nothing.
type scanner struct {
	usage func(raw []byte, in member) // called for each; nil for none

	depth    int
	inString bool
	escaped  bool
	value    bool     // after a colon
	name     [24]byte // of the last member
	nameLen  int      // -1 if it is longer
	length   int      // of the string that is being read, or was last
	within   member   // whose depth 2 is
	from     int      // the depth that kept began at; 0 if nothing is kept
	kept     []byte

	total int // bytes, but for blobs
	blobs int // tokens of blobs
	text  int // bytes of what a model said
}

func (s *scanner) reset() {
	s.depth, s.from, s.nameLen = 0, 0, 0
	s.inString, s.escaped, s.value, s.within = false, false, false, other
}

// tokens estimates those of a request.
func (s *scanner) tokens() uint64 { return uint64(ceilDiv(s.total, bytesPerToken) + s.blobs) }

// textTokens estimates those of an answer.
func (s *scanner) textTokens() uint64 { return uint64(ceilDiv(s.text, bytesPerToken)) }

func ceilDiv(n, d int) int { return (n + d - 1) / d }

func (s *scanner) write(p []byte) {
	s.total += len(p)
	for len(p) > 0 {
		n := 1
		switch {
		case !s.inString:
			n = s.between(p)
		case s.escaped:
			s.escaped = false
			s.length++
			s.keep(p[:1])
		default:
			n = s.inside(p)
		}
		p = p[n:]
	}
}

// inside takes the bytes of a string up to its end or an escape, that included.
func (s *scanner) inside(p []byte) (n int) {
	for n < len(p) && p[n] != '"' && p[n] != '\\' {
		n++
	}
	s.length += n
	if !s.value && s.nameLen >= 0 {
		if s.nameLen+n <= len(s.name) {
			s.nameLen += copy(s.name[s.nameLen:], p[:n])
		} else {
			s.nameLen = -1
		}
	}
	if n < len(p) {
		if p[n] == '"' {
			s.inString = false
			s.said()
		} else {
			s.escaped = true
			s.length++
			if !s.value {
				s.nameLen = -1 // no name that we look for has one
			}
		}
		n++
	}
	s.keep(p[:n])
	return n
}

// between takes the bytes up to one that says something, that included.
func (s *scanner) between(p []byte) (n int) {
	for n < len(p) && !structural[p[n]] {
		n++
	}
	if n == len(p) {
		s.keep(p)
		return n
	}
	n++
	s.keep(p[:n])
	switch c := p[n-1]; c {
	case '"':
		s.inString, s.length = true, 0
		if !s.value {
			s.nameLen = 0
		}
	case ':':
		s.value = true
	case ',':
		s.value = false
	case '{', '[':
		s.open(c)
	default:
		s.close()
	}
	return n
}

// structural are the bytes that say something outside of strings.
var structural = [256]bool{'"': true, ':': true, ',': true, '{': true, '[': true, '}': true, ']': true}

func (s *scanner) keep(p []byte) {
	if s.from == 0 {
		return
	}
	if len(s.kept)+len(p) > maxUsage {
		s.from = 0
		return
	}
	s.kept = append(s.kept, p...)
}

// is reports whether the value that is being read is the member of that name.
func (s *scanner) is(name string) bool {
	return s.value && s.nameLen == len(name) && string(s.name[:s.nameLen]) == name
}

// said accounts for a string that is over.
func (s *scanner) said() {
	if !s.value || s.nameLen < 0 {
		return
	}
	switch string(s.name[:s.nameLen]) {
	case "content", "text", "thinking", "reasoning", "reasoning_content", "refusal", "partial_json", "arguments", "delta":
		s.text += s.length
	case "data", "url", "image_url":
		s.total -= s.length
		s.blobs += min(ceilDiv(s.length, bytesPerToken), maxBlob)
	}
}

func (s *scanner) open(c byte) {
	wanted := c == '{' && s.from == 0 && s.is("usage")
	switch {
	case wanted && (s.depth == 1 || s.depth == 2 && s.within != other):
		s.from = s.depth + 1
		s.kept = append(s.kept[:0], c)
	case s.depth == 1 && c == '{' && s.is("message"):
		s.within = message
	case s.depth == 1 && c == '{' && s.is("response"):
		s.within = response
	case s.depth <= 1:
		s.within = other
	}
	s.depth++
	s.value = false
}

func (s *scanner) close() {
	s.value = false
	if s.depth == 0 {
		return
	}
	if s.from != 0 && s.depth == s.from {
		s.from = 0
		if s.usage != nil {
			in := other
			if s.depth == 3 {
				in = s.within
			}
			s.usage(s.kept, in)
		}
	}
	s.depth--
}
