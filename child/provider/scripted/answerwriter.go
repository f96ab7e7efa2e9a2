package scripted

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// fragmentSize is the size of the pieces that a call's input is streamed in, bytes.
const fragmentSize = 16

// answerWriter writes one answer. Once the listener is gone, the context has ended or
// the answer failed, it has ended and everything it does is without effect.
type answerWriter struct {
	ctx    context.Context // of the one call of Stream that this answer is written in
	yield  func(provider.Delta, error) bool
	ended  bool
	bytes  int                 // bytes of text, thinking and inputs so far
	usage  *protocol.TurnUsage // what the scenario says it cost; nil to estimate
	memory *memory             // of the conversation
}

// emit passes on one delta and reports whether to go on.
func (w *answerWriter) emit(d provider.Delta) bool {
	if w.ended {
		return false
	}
	if err := w.ctx.Err(); err != nil {
		w.fail(err)
		return false
	}
	w.ended = !w.yield(d, nil)
	return !w.ended
}

func (w *answerWriter) fail(err error) {
	if !w.ended {
		w.ended = true
		w.yield(nil, err)
	}
}

// stop ends the answer, if nothing else has.
func (w *answerWriter) stop(r provider.Request) {
	usage := protocol.TurnUsage{InputTokens: estimate(r), OutputTokens: tokens(w.bytes)}
	if w.usage != nil {
		usage = *w.usage
	}
	if usage.Model == nil {
		name := Name
		usage.Model = &name
	}
	w.emit(provider.Stop{Usage: usage})
}

// wait lets time pass and reports whether to go on.
func (w *answerWriter) wait(d time.Duration) bool {
	if w.ended || d <= 0 {
		return !w.ended
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ctx.Done():
		w.fail(w.ctx.Err())
		return false
	}
}

// say streams text, a word a delta, with a pause before each word but the first.
func (w *answerWriter) say(text string, pause time.Duration) {
	w.words(text, pause, func(word string) provider.Delta { return provider.Text{Text: word} })
}

func (w *answerWriter) sayf(format string, a ...any) { w.say(fmt.Sprintf(format, a...), 0) }

func (w *answerWriter) think(text string, pause time.Duration) {
	w.words(text, pause, func(word string) provider.Delta { return provider.Thinking{Text: word} })
}

func (w *answerWriter) words(text string, pause time.Duration, delta func(word string) provider.Delta) {
	for first := true; text != ""; first = false {
		word := text[:wordEnd(text)]
		text = text[len(word):]
		if !first && !w.wait(pause) {
			return
		}
		w.bytes += len(word)
		if !w.emit(delta(word)) {
			return
		}
	}
}

// call streams a tool call: its start, its input in pieces, and all of it.
func (w *answerWriter) call(id, name string, input jsontext.Value) {
	if !w.emit(provider.CallStart{ID: id, Name: name}) {
		return
	}
	for rest := string(input); rest != ""; {
		piece := textcut.Head(rest, fragmentSize)
		if !w.emit(provider.CallInput{ID: id, Fragment: piece}) {
			return
		}
		rest = rest[len(piece):]
	}
	w.bytes += len(name) + len(input)
	w.emit(provider.Call{ToolCall: protocol.ToolCall{ID: id, Name: name, Input: input}})
}

// wordEnd is the length of the first word of text with the space around it.
func wordEnd(text string) int {
	start := len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
	space := strings.IndexFunc(text[start:], unicode.IsSpace)
	if space < 0 {
		return len(text)
	}
	next := strings.IndexFunc(text[start+space:], func(r rune) bool { return !unicode.IsSpace(r) })
	if next < 0 {
		return len(text)
	}
	return start + space + next
}
