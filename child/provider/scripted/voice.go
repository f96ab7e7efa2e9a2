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

// fragment is the size of the pieces that a call's input is streamed in, bytes.
const fragment = 16

// voice speaks one answer. Once the listener is gone, the context has ended or
// the answer failed, it is silent and everything it does is without effect.
type voice struct {
	ctx    context.Context // of the one call of Stream that this voice lives in
	yield  func(provider.Delta, error) bool
	silent bool
	spoken int                 // bytes of text, thinking and inputs so far
	usage  *protocol.TurnUsage // what the scenario says it cost; nil to estimate
	memory *memory             // of the conversation
}

// emit passes on one delta and reports whether to go on.
func (v *voice) emit(d provider.Delta) bool {
	if v.silent {
		return false
	}
	if err := v.ctx.Err(); err != nil {
		v.fail(err)
		return false
	}
	v.silent = !v.yield(d, nil)
	return !v.silent
}

// fail ends the answer with an error.
func (v *voice) fail(err error) {
	if !v.silent {
		v.silent = true
		v.yield(nil, err)
	}
}

// stop ends the answer, if nothing else has.
func (v *voice) stop(r provider.Request) {
	usage := protocol.TurnUsage{InputTokens: estimate(r), OutputTokens: tokens(v.spoken)}
	if v.usage != nil {
		usage = *v.usage
	}
	if usage.Model == nil {
		name := Name
		usage.Model = &name
	}
	v.emit(provider.Stop{Usage: usage})
}

// wait lets time pass and reports whether to go on.
func (v *voice) wait(d time.Duration) bool {
	if v.silent || d <= 0 {
		return !v.silent
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-v.ctx.Done():
		v.fail(v.ctx.Err())
		return false
	}
}

// say streams text, a word a delta, with a pause before each word but the first.
func (v *voice) say(text string, pause time.Duration) {
	v.words(text, pause, func(word string) provider.Delta { return provider.Text{Text: word} })
}

// sayf is say for a format, without pauses.
func (v *voice) sayf(format string, a ...any) { v.say(fmt.Sprintf(format, a...), 0) }

// think streams reasoning as say streams text.
func (v *voice) think(text string, pause time.Duration) {
	v.words(text, pause, func(word string) provider.Delta { return provider.Thinking{Text: word} })
}

func (v *voice) words(text string, pause time.Duration, delta func(word string) provider.Delta) {
	for first := true; text != ""; first = false {
		word := text[:wordEnd(text)]
		text = text[len(word):]
		if !first && !v.wait(pause) {
			return
		}
		v.spoken += len(word)
		if !v.emit(delta(word)) {
			return
		}
	}
}

// call streams a tool call: its start, its input in pieces, and all of it.
func (v *voice) call(id, name string, input jsontext.Value) {
	if !v.emit(provider.CallStart{ID: id, Name: name}) {
		return
	}
	for rest := string(input); rest != ""; {
		piece := textcut.Head(rest, fragment)
		if !v.emit(provider.CallInput{ID: id, Fragment: piece}) {
			return
		}
		rest = rest[len(piece):]
	}
	v.spoken += len(name) + len(input)
	v.emit(provider.Call{ToolCall: protocol.ToolCall{ID: id, Name: name, Input: input}})
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
