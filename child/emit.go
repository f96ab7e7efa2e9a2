package child

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/foreign"
	"nexus.internal/child/provider"
	"nexus.internal/child/toolenv"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/writequeue"
)

const (
	// pieceSize bounds one piece of a long text, in bytes. Written as JSON it
	// grows sixfold at most (\u0000), so that a piece always fits a frame.
	pieceSize = 128 << 10
	// maxErrorText bounds the message of an error, in bytes.
	maxErrorText = 8 << 10
	// maxAnswers and maxAnswerBytes bound the frames that wait because stdout is
	// not read. Those beyond are lost, and an error without id says how many.
	maxAnswers     = 1024
	maxAnswerBytes = 8 << 20
)

// emitter is the only writer to stdout. It is safe for concurrent use; each
// frame is one write, but those that close a turn, which share one. After the first
// failed write it is silent.
//
// The worker sends: it waits until the frame is written, so that a turn goes no
// faster than it is read. All others post: they never wait, so that commands are
// acted on though nobody reads.
type emitter struct {
	out   *writequeue.Writer
	ascii bool
	// file names where a value that does not fit is kept whole; "" if nowhere.
	file string
}

// newEmitter returns an emitter to w. fail is called once, with the first error of w.
func newEmitter(w io.Writer, ascii bool, file string, fail func(error)) *emitter {
	e := &emitter{ascii: ascii, file: file}
	e.out = writequeue.New(stdout{frame.NewWriter(w), writequeue.Poll(w), e, fail}, writequeue.Bounds{Pieces: maxAnswers, Bytes: maxAnswerBytes})
	return e
}

// stdout is the stream of an emitter.
type stdout struct {
	*frame.Writer
	writequeue.Poller
	emitter *emitter
	fail    func(error)
}

func (s stdout) Lost(n int) []byte {
	return s.emitter.frame(protocol.Error{Message: fmt.Sprintf("%s%d answers were lost", protocol.AnswersLost, n)})
}

func (s stdout) Failed(err error) { s.fail(fmt.Errorf("write stdout: %w", err)) }

// encode makes the frame of e, newline excluded.
func (w *emitter) encode(e protocol.Event) ([]byte, error) {
	payload, err := protocol.AppendEvent(nil, e)
	if err == nil && w.ascii {
		payload = escape(payload)
	}
	return payload, err
}

// send writes one event and waits until it is written.
func (w *emitter) send(e protocol.Event) { w.out.Send(w.frame(e)) }

// sendAll writes events by one write and waits until it is done. It calls last when what came
// before is written, and adds the events that last returns: what is posted from then on comes
// after them.
func (w *emitter) sendAll(events []protocol.Event, last func() []protocol.Event) {
	frames := make([][]byte, 0, len(events))
	for _, e := range events {
		frames = append(frames, w.frame(e))
	}
	w.out.SendFrom(func() [][]byte {
		for _, e := range last() {
			frames = append(frames, w.frame(e))
		}
		return frames
	})
}

// post writes one event, later if that would take waiting.
func (w *emitter) post(e protocol.Event) { w.out.Post(w.frame(e)) }

// frame makes the frame of one event. What does not fit is replaced by what
// does.
func (w *emitter) frame(e protocol.Event) []byte {
	if failure, ok := e.(protocol.Error); ok {
		failure.Message = strings.ToValidUTF8(textcut.Head(failure.Message, maxErrorText), "\uFFFD")
		e = failure
	}
	payload, err := w.encode(e)
	if err == nil && len(payload) < frame.MaxWritten {
		return payload
	}
	if err == nil {
		err = fmt.Errorf("%s of %d bytes does not fit a frame", e.Name(), len(payload))
	}
	if r, ok := e.(protocol.Response); ok {
		return w.frame(protocol.FailureResponse(r.ID, r.Command, refusal(err)))
	}
	return w.frame(protocol.Error{Message: err.Error()})
}

func commandError(id string, err error) protocol.Error {
	e := protocol.Error{Message: err.Error()}
	if id != "" {
		e.ID = &id
	}
	return e
}

// update writes one step of a turn, in pieces where it is long.
func (w *emitter) update(e protocol.AssistantEvent) {
	switch e := e.(type) {
	case protocol.TextDelta:
		for _, piece := range pieces(e.Delta) {
			w.send(protocol.MessageUpdate{Event: protocol.TextDelta{Delta: piece}})
		}
	case protocol.ThinkingDelta:
		for _, piece := range pieces(e.Delta) {
			w.send(protocol.MessageUpdate{Event: protocol.ThinkingDelta{Delta: piece}})
		}
	case protocol.ToolcallInputDelta:
		for _, piece := range pieces(e.Delta) {
			w.send(protocol.MessageUpdate{Event: protocol.ToolcallInputDelta{ToolID: e.ToolID, Delta: piece}})
		}
	case protocol.ToolcallOutputDelta:
		for _, piece := range pieces(e.Delta) {
			w.send(protocol.MessageUpdate{Event: protocol.ToolcallOutputDelta{ToolID: e.ToolID, Delta: piece}})
		}
	case protocol.ToolcallInput:
		if !w.fits(e) {
			e.Input = w.headOf(string(e.Input))
		}
		w.send(protocol.MessageUpdate{Event: e})
	case protocol.ToolcallResult:
		if w.fits(e) {
			w.send(protocol.MessageUpdate{Event: e})
			return
		}
		w.send(protocol.MessageUpdate{Event: w.shortResult(e)})
	default:
		w.send(protocol.MessageUpdate{Event: e})
	}
}

func (w *emitter) fits(e protocol.AssistantEvent) bool {
	payload, err := w.encode(protocol.MessageUpdate{Event: e})
	return err == nil && len(payload) < frame.MaxWritten
}

// headOf replaces a tool's input that does not fit.
func (w *emitter) headOf(whole string) jsontext.Value {
	return mustMarshal(struct {
		protocol.Truncation
		Head string `json:"head"`
	}{protocol.Truncation{Truncated: true, Size: uint64(len(whole)), File: w.file}, textcut.Head(whole, pieceSize)})
}

// shortResult replaces a tool's result that does not fit.
func (w *emitter) shortResult(e protocol.ToolcallResult) protocol.ToolcallResult {
	return protocol.ToolcallResult{
		ToolID: e.ToolID, Result: strings.ToValidUTF8(textcut.Head(e.Result, pieceSize), "\uFFFD"),
		Truncated: true, Size: int64(len(e.Result)), File: w.file, IsError: e.IsError,
	}
}

// pieces splits a text at character boundaries; "" has none.
func pieces(text string) []string {
	var all []string
	for len(text) > pieceSize {
		piece := textcut.Head(text, pieceSize)
		all = append(all, piece)
		text = text[len(piece):]
	}
	if text != "" {
		all = append(all, text)
	}
	return all
}

// escape writes all that is not ASCII as \u sequences. Only strings hold such
// characters in JSON, so the result means the same.
func escape(payload []byte) []byte {
	i := strings.IndexFunc(string(payload), func(r rune) bool { return r >= utf8.RuneSelf })
	if i < 0 {
		return payload
	}
	out := append(make([]byte, 0, len(payload)+len(payload)/2), payload[:i]...)
	for _, r := range string(payload[i:]) {
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func mustMarshal(v any) jsontext.Value {
	data, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("child: " + err.Error())
	}
	return data
}

// refusal is what a response says that refuses a command because of err.
func refusal(err error) protocol.Refusal {
	no := protocol.Refusal{Error: textcut.Head(err.Error(), maxErrorText)}
	if _, ok := errors.AsType[*toolenv.BeyondError](err); ok {
		no.Reason = protocol.BeyondBound
	}
	if _, ok := errors.AsType[*busyError](err); ok {
		no.Reason = protocol.Busy
	}
	if e, ok := errors.AsType[*saveError](err); ok {
		no.Reason = protocol.NotSaved
		if e.narrowed != nil {
			no.Permissions, no.Granted = &e.narrowed.Permissions, &e.narrowed.Granted
		}
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			no.Reason = protocol.StorageFull
		}
	}
	if e, ok := errors.AsType[*provider.Error](err); ok {
		no.Reason, no.RetryAfterMS = e.Reason, uint64(e.RetryAfter.Milliseconds())
	}
	if e, ok := errors.AsType[*foreign.TurnError](err); ok {
		no.Reason = e.Reason
	}
	if _, ok := errors.AsType[*unsupportedError](err); ok {
		no.Reason = protocol.Unsupported
	}
	if errors.Is(err, turn.ErrHeldBack) {
		no.Reason = protocol.ContentRefused
	}
	return no
}

// saveError says that a change is not in the session's file.
type saveError struct {
	err error
	// narrowed is what holds now: what the change takes from the agent holds all the
	// same. Nil if nothing has changed.
	narrowed *toolenv.Rights
}

func (e *saveError) Error() string {
	if e.narrowed != nil {
		return e.err.Error() + "; what the change takes from the agent holds now, and is saved before its next turn"
	}
	return e.err.Error()
}

func (e *saveError) Unwrap() error { return e.err }
