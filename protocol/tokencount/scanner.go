package tokencount

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
)

// member is a member of an answer that may hold a usage object.
type member int

const (
	other    member = iota
	message         // of Anthropic's message_start
	response        // of OpenAI's response.completed
	options         // "stream_options" of a request
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

	model   []byte // the inside of the string "model" at the top, as it came, at most maxModel+1
	inModel bool   // it is being read
	named   bool   // there is a member "model" at the top
	several bool   // there is "models"
	streams bool   // "stream" is true
	vague   string // the last of "stream" and "background" whose value is none of true, false and null; "" if none is
	asks    int    // how often the options of the stream name "include_usage", or may do
	counts  bool   // as true
	option  int    // how often there are such options
	ended   bool   // the object has
	err     error  // why what was read begins no request; the first
}

var (
	errModels  = errors.New(`the request must name its model once, as "model"`)
	errHidden  = errors.New("the request asks to be answered in the background, so that what it takes is not counted: leave \"background\" out")
	errEscaped = errors.New("a name of a member at the top of the request has a backslash: write it without escapes")
)

// maxModel bounds the name of a model as it is written, in bytes.
const maxModel = 2 << 10

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
			s.keepModel(p[:1])
		default:
			n = s.insideString(p)
		}
		p = p[n:]
	}
}

// insideString takes the bytes of a string up to its end or an escape, that included.
func (s *scanner) insideString(p []byte) (n int) {
	for n < len(p) && p[n] != '"' && p[n] != '\\' {
		if p[n] < ' ' { // as of UTF-16
			s.unexpected(p[n])
		}
		n++
	}
	s.length += n
	s.keepModel(p[:n])
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
			s.keepModel(p[n : n+1])
			s.length++
			if !s.value {
				s.nameLen = -1 // no name that we look for has one
				if s.depth == 1 {
					s.err = cmp.Or(s.err, errEscaped)
				}
				if s.depth == 2 && s.within == options {
					s.asks++ // it may be that name
				}
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
		// A comment, a name without quotes or another encoding would be read in more than one way.
		if c := p[n]; c != ' ' && c != '\t' && c != '\r' && c != '\n' && (s.depth == 0 || s.depth == 1 && !s.value || !inWord(c)) {
			s.unexpected(c)
		}
		s.word(p[n])
		n++
	}
	if n == len(p) {
		s.keep(p)
		return n
	}
	n++
	s.keep(p[:n])
	if s.depth == 0 && (s.ended || p[n-1] != '{') {
		s.unexpected(p[n-1])
	}
	if c := p[n-1]; c == '"' || c == '{' || c == '[' {
		s.flag(c)
	}
	switch c := p[n-1]; c {
	case '"':
		s.inString, s.length = true, 0
		if !s.value {
			s.nameLen = 0
		} else if s.depth == 1 && s.isMember("model") {
			s.inModel, s.model = true, s.model[:0]
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

// word takes a byte of a number, true, false or null, or of white space: the t of true is in no other one.
func (s *scanner) word(c byte) {
	if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
		return
	}
	s.flag(c)
	if c == 't' && s.depth == 2 && s.within == options && s.nameLen >= 0 && s.isMember("include_usage") {
		s.counts = true
	}
}

// flag takes a byte of a word, or the one that begins another value. Some services ignore the case of a name, and some take a
// text or a number as true.
func (s *scanner) flag(c byte) {
	if s.depth != 1 || !s.value || s.nameLen < 0 || s.answer != nil {
		return
	}
	switch name := s.name[:s.nameLen]; {
	case bytes.EqualFold(name, []byte("stream")):
		s.streams = s.streams || c == 't'
	case !bytes.EqualFold(name, []byte("background")):
		return
	case c == 't':
		s.err = cmp.Or(s.err, errHidden)
	}
	if bytes.IndexByte([]byte("truefalsn"), c) < 0 {
		s.vague = string(s.name[:s.nameLen])
	}
}

func (s *scanner) unexpected(c byte) {
	if s.err == nil {
		s.err = fmt.Errorf("the request is no JSON object: unexpected %q", string([]byte{c}))
	}
}

// nameMember takes a name at the top. Some services take the last of several, and some ignore the case.
func (s *scanner) nameMember(name []byte) {
	s.several = s.several || bytes.EqualFold(name, []byte("models"))
	if bytes.EqualFold(name, []byte("stream_options")) {
		s.option++
	}
	if bytes.EqualFold(name, []byte("model")) {
		if s.named || string(name) != "model" {
			s.err = cmp.Or(s.err, errModels)
		}
		s.named = true
	}
}

// inWord reports whether a byte may be one of a number, true, false or null.
func inWord(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '+' || c == '-' || c == '.'
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

// keepModel keeps a piece of the model's name, if that is what is being read.
func (s *scanner) keepModel(p []byte) {
	if s.inModel {
		s.model = append(s.model, p[:min(len(p), maxModel+1-len(s.model))]...)
	}
}

// endString accounts for a string that is over.
func (s *scanner) endString() {
	s.inModel = false
	if !s.value && s.depth == 1 && s.nameLen >= 0 {
		s.nameMember(s.name[:s.nameLen])
	}
	if !s.value && s.depth == 2 && s.within == options && s.nameLen >= 0 && bytes.EqualFold(s.name[:s.nameLen], []byte("include_usage")) {
		s.asks++
	}
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
	case s.depth == 1 && c == '{' && s.answer == nil && s.isMember("stream_options"):
		s.within = options
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
	s.depth--
	s.ended = s.ended || s.depth == 0
	if s.depth == 0 && s.answer != nil && s.answer.Form == JSON {
		s.answer.whole = true
	}
}
