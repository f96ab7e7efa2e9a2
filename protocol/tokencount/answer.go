package tokencount

import (
	"bytes"
	"mime"

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

// Form is how an answer is written.
type Form int

// The forms. A web page is no answer of a model, so that nothing of it counts.
const (
	JSON Form = iota
	EventStream
	Page
)

// FormOf is the form of an answer of that Content-Type: what is neither JSON nor HTML is read
// as an event stream, as some services name another type, or none.
func FormOf(contentType string) Form {
	switch media, _, _ := mime.ParseMediaType(contentType); media {
	case "application/json":
		return JSON
	case "text/html":
		return Page
	}
	return EventStream
}

// Answer reads the usage off an answer that passes by. It holds no more than one
// usage object.
type Answer struct {
	Form Form // not to be changed after the first Write

	scanner scanner
	prefix  int // bytes of "data:" that this line began with; -1 for another line
	end     int // line feeds in a row

	found Count
	final bool // found has the output as a whole
	whole bool // the model has ended its answer
}

// dataField begins the lines of an event stream that have a value.
const dataField = "data:"

// Write takes the next bytes. It never fails.
func (a *Answer) Write(p []byte) (int, error) {
	a.scanner.answer = a
	switch a.Form {
	case Page:
		return len(p), nil
	case JSON:
		a.scanner.write(p)
		return len(p), nil
	case EventStream:
	}
	for rest := p; len(rest) > 0; {
		if a.prefix == len(dataField) {
			i := bytes.IndexAny(rest, "\r\n")
			if i < 0 {
				a.scanner.write(rest)
				break
			}
			a.scanner.write(rest[:i])
			rest = rest[i:]
		}
		a.line(rest[0])
		rest = rest[1:]
	}
	return len(p), nil
}

// line takes a byte that is not part of a value.
func (a *Answer) line(c byte) {
	switch {
	case c == '\n':
		if a.end++; a.end > 1 { // the event is over, whole or not
			a.scanner.reset()
		}
		a.prefix = 0
	case c == '\r':
		a.prefix = 0
	default:
		a.end = 0
		if a.prefix >= 0 && a.prefix < len(dataField) && dataField[a.prefix] == c {
			a.prefix++
		} else {
			a.prefix = -1
		}
	}
}

// count takes a usage object. Services that send several send sums. That of
// Anthropic's message_start is inside the message, and its output is not the
// last word.
func (a *Answer) count(raw []byte, in member) {
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
	var now Count
	var has bool
	if now.Input, has = number("prompt_tokens"); has { // OpenAI: what was cached is part of it
		now.CacheRead, _ = number("prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens") // the second is DeepSeek's
		now.CacheCreation, _ = number("prompt_tokens_details.cache_write_tokens")                   // OpenRouter's
		now.Input -= min(now.Input, now.CacheCreation)
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
		a.final = true
	}
	a.whole = a.whole || in == response // that of response.completed
	a.found.Input = max(a.found.Input, now.Input)
	a.found.Output = max(a.found.Output, now.Output)
	a.found.CacheRead = max(a.found.CacheRead, now.CacheRead)
	a.found.CacheCreation = max(a.found.CacheCreation, now.CacheCreation)
}

// Whole reports whether the model has ended the answer.
func (a *Answer) Whole() bool { return a.whole }

// Uncounted reports whether the model has ended its answer, and the service has not said what that took.
func (a *Answer) Uncounted() bool { return a.whole && !a.final }

// Count is what the request and the answer so far used, by the service's count, and by
// ours for what it did not count. asked is the estimate of the request.
func (a *Answer) Count(asked uint64) Count {
	u := a.found
	if a.Form == Page {
		return u
	}
	if u.Input+u.CacheRead+u.CacheCreation == 0 {
		u.Input, u.Estimated = asked, true
	}
	if said := a.scanner.textTokens(); !a.final || u.Output == 0 && said > 0 {
		u.Output, u.Estimated = max(u.Output, said), true
	}
	return u
}
