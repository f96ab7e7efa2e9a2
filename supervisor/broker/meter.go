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
	scanner usageScanner
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
	m.scanner.meter = m
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
