package tokencount

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
	answer *Answer // takes each usage object; nil for none

	depth     int
	inString  bool
	escaped   bool
	value     bool     // after a colon
	name      [24]byte // of the last member
	nameLen   int      // -1 if it is longer
	length    int      // of the string that is being read, or was last
	within    member   // whose depth 2 is
	keptDepth int      // the depth that kept began at; 0 if nothing is kept
	kept      []byte

	totalBytes int // bytes, but for blobs
	blobTokens int // tokens of blobs
	textBytes  int // bytes of what a model said
}

func (s *scanner) reset() {
	s.depth, s.keptDepth, s.nameLen = 0, 0, 0
	s.inString, s.escaped, s.value, s.within = false, false, false, other
}

func (s *scanner) tokens() uint64 {
	return uint64(ceilDiv(s.totalBytes, bytesPerToken) + s.blobTokens)
}

func (s *scanner) textTokens() uint64 { return uint64(ceilDiv(s.textBytes, bytesPerToken)) }

func ceilDiv(n, d int) int { return (n + d - 1) / d }

func (s *scanner) write(p []byte) {
	s.totalBytes += len(p)
	for len(p) > 0 {
		n := 1
		switch {
		case !s.inString:
			n = s.outsideString(p)
		case s.escaped:
			s.escaped = false
			s.length++
			s.keep(p[:1])
		default:
			n = s.insideString(p)
		}
		p = p[n:]
	}
}

// insideString takes the bytes of a string up to its end or an escape, that included.
func (s *scanner) insideString(p []byte) (n int) {
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
			s.endString()
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

// outsideString takes the bytes up to one that says something, that included.
func (s *scanner) outsideString(p []byte) (n int) {
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
	if s.keptDepth == 0 {
		return
	}
	if len(s.kept)+len(p) > maxUsage {
		s.keptDepth = 0
		return
	}
	s.kept = append(s.kept, p...)
}

func (s *scanner) isMember(name string) bool {
	return s.value && s.nameLen == len(name) && string(s.name[:s.nameLen]) == name
}

// endString accounts for a string that is over.
func (s *scanner) endString() {
	if !s.value || s.nameLen < 0 {
		return
	}
	switch string(s.name[:s.nameLen]) {
	case "content", "text", "thinking", "reasoning", "reasoning_content", "refusal", "partial_json", "arguments", "delta":
		s.textBytes += s.length
	case "finish_reason", "stop_reason":
		if s.answer != nil && s.length > 0 {
			s.answer.whole = true
		}
	case "data", "url", "image_url":
		s.totalBytes -= s.length
		s.blobTokens += min(ceilDiv(s.length, bytesPerToken), maxBlob)
	}
}

func (s *scanner) open(c byte) {
	wanted := c == '{' && s.keptDepth == 0 && s.isMember("usage")
	switch {
	case wanted && (s.depth == 1 || s.depth == 2 && s.within != other):
		s.keptDepth = s.depth + 1
		s.kept = append(s.kept[:0], c)
	case s.depth == 1 && c == '{' && s.isMember("message"):
		s.within = message
	case s.depth == 1 && c == '{' && s.isMember("response"):
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
	if s.keptDepth != 0 && s.depth == s.keptDepth {
		s.keptDepth = 0
		if s.answer != nil {
			in := other
			if s.depth == 3 {
				in = s.within
			}
			s.answer.count(s.kept, in)
		}
	}
	if s.depth--; s.depth == 0 && s.answer != nil && s.answer.Form == JSON {
		s.answer.whole = true
	}
}
