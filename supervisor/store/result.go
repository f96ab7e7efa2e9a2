package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/segmentlog"
)

// Bounds of what is kept of requests (SPEC §7).
const (
	maxOutcomes = 256
	maxText     = 64 << 10 // bytes of one text
	maxTexts    = 1 << 20  // bytes of all texts, in a snapshot
	maxShort    = 160      // bytes of each text of an error that is written in a room
)

// The lines of requests. A number is given once; those of what came later are higher.
type (
	accepted struct {
		Number    uint64 `json:"accepted"`
		RequestID string `json:"request_id"`
		SHA256    string `json:"sha256"` // of the content, hexadecimal
	}

	ended struct {
		Number      uint64              `json:"ended"`
		Of          uint64              `json:"of"` // the number of what was accepted
		Outcome     supervisor.Outcome  `json:"outcome"`
		StopReason  protocol.StopReason `json:"stop_reason,omitempty" wire:"default"`
		Usage       protocol.TurnUsage  `json:"usage"`
		Incarnation uint64              `json:"incarnation"`
		Attempt     int                 `json:"attempt,omitzero" wire:"default"`
		RanMS       int                 `json:"ran_ms,omitzero" wire:"default"`
		Error       *failure            `json:"error,omitzero"`
		Truncated   bool                `json:"truncated,omitzero" wire:"default"`
		Text        string              `json:"text,omitempty" wire:"default"`
	}

	// failure is an error of the supervisor in writing.
	failure struct {
		Message     string   `json:"message"`
		Is          []string `json:"is,omitempty" wire:"default"`      // names of sentinels
		Kind        string   `json:"kind,omitempty" wire:"default"`    // of a typed error
		Command     string   `json:"command,omitempty" wire:"default"` // of a child or command error
		Incarnation uint64   `json:"incarnation,omitzero" wire:"default"`
		Reason      string   `json:"reason,omitempty" wire:"default"` // of a crash, or of a child error
		Cause       string   `json:"cause,omitempty" wire:"default"`
		Exit        *exit    `json:"exit,omitzero"`
		TurnMS      int64    `json:"turn_ms,omitzero" wire:"default"` // of a turn limit
	}

	exit struct {
		Code   int    `json:"code"`
		Signal string `json:"signal,omitempty" wire:"default"`
		Stderr string `json:"stderr,omitempty" wire:"default"`
		Limit  string `json:"limit,omitempty" wire:"default"`
	}
)

// members appends what json.Marshal makes of a.
func (a accepted) members(dst []byte) ([]byte, error) {
	m := protocol.NewMembers(dst)
	m.Uint("accepted", a.Number)
	m.String("request_id", a.RequestID)
	m.String("sha256", a.SHA256)
	return m.Close()
}

// members appends what json.Marshal makes of e, unless that has an error.
func (e ended) members(dst []byte) ([]byte, error) {
	if e.Error != nil {
		return nil, errors.ErrUnsupported
	}
	m := protocol.NewMembers(dst)
	m.Uint("ended", e.Number)
	m.Uint("of", e.Of)
	m.String("outcome", string(e.Outcome))
	m.OmitEmpty("stop_reason", string(e.StopReason))
	m.Usage("usage", e.Usage)
	m.Uint("incarnation", e.Incarnation)
	m.OmitZero("attempt", e.Attempt)
	m.OmitZero("ran_ms", e.RanMS)
	m.OmitFalse("truncated", e.Truncated)
	m.OmitEmpty("text", e.Text)
	return m.Close()
}

// appendLine appends v as a line: by hand what can be, as each turn does it, and else by the
// general encoder. What is not UTF-8 in it is replaced.
func appendLine(dst []byte, v interface{ members([]byte) ([]byte, error) }) []byte {
	if out, err := v.members(slices.Grow(dst, 384)); err == nil {
		return append(out, '\n')
	}
	line, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("records: encode: " + err.Error()) // the types above can be encoded
	}
	return append(append(dst, line...), '\n')
}

func endedOf(number, of uint64, r supervisor.Result) ended {
	text := textcut.Head(r.Text, maxText)
	return ended{
		Number: number, Of: of, Outcome: r.Outcome, StopReason: r.StopReason, Usage: r.Usage,
		Incarnation: r.Incarnation, Attempt: r.Attempt, RanMS: int(r.Ran.Milliseconds()), Error: failureOf(r.Err), Truncated: r.Truncated || len(text) < len(r.Text), Text: text,
	}
}

// short is the line of e without what can be long, its text and most of an error's, so that
// it fits into a room.
func (e ended) short() (line []byte) {
	e.Truncated, e.Text = e.Truncated || e.Text != "", ""
	failed := e.Error
	for limit := maxShort; ; limit /= 2 {
		if failed != nil {
			f := *failed
			f.Message, f.Cause = textcut.Head(f.Message, limit), textcut.Head(f.Cause, limit)
			f.Command, f.Reason = textcut.Head(f.Command, limit), textcut.Head(f.Reason, limit)
			if f.Exit != nil {
				f.Exit = &exit{Code: f.Exit.Code, Signal: textcut.Head(f.Exit.Signal, limit), Limit: textcut.Head(f.Exit.Limit, limit)}
			}
			e.Error = &f
		}
		if line = appendLine(nil, e); len(line) <= segmentlog.RoomSize || limit == 0 {
			return line
		}
		e.Usage.Model = nil
	}
}

func (e ended) result(id string) *supervisor.Result {
	return &supervisor.Result{
		TurnID: id, Outcome: e.Outcome, Text: e.Text, Truncated: e.Truncated, StopReason: e.StopReason,
		Usage: e.Usage, Incarnation: e.Incarnation, Attempt: e.Attempt, Ran: time.Duration(e.RanMS) * time.Millisecond, Err: e.Error.err(),
	}
}

// sentinels are the errors that are told apart by which they are.
var sentinels = map[string]error{
	"aborted":      supervisor.ErrAborted,
	"stopped":      supervisor.ErrStopped,
	"draining":     supervisor.ErrDraining,
	"turn_timeout": supervisor.ErrTurnTimeout,
	"failed":       supervisor.ErrFailed,
	"not_found":    supervisor.ErrNotFound,
	"deadline":     context.DeadlineExceeded,
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Message: err.Error()}
	for _, name := range []string{"aborted", "stopped", "draining", "turn_timeout", "failed", "not_found", "deadline"} {
		if errors.Is(err, sentinels[name]) {
			f.Is = append(f.Is, name)
		}
	}
	if e, ok := errors.AsType[*supervisor.CrashError](err); ok {
		f.Kind, f.Incarnation, f.Reason, f.Cause, f.Exit = "crash", e.Incarnation, string(e.Reason), e.Cause, (*exit)(e.Exit)
	} else if e, ok := errors.AsType[*supervisor.StartError](err); ok {
		f.Kind, f.Cause, f.Exit = "start", e.Err.Error(), (*exit)(e.Exit)
	} else if e, ok := errors.AsType[*supervisor.ChildError](err); ok {
		f.Kind, f.Command, f.Cause, f.Reason = "child", e.Command, e.Message, e.Reason
	} else if e, ok := errors.AsType[*supervisor.CommandError](err); ok {
		f.Kind, f.Command, f.Cause = "command", e.Command, e.Err.Error()
	} else if e, ok := errors.AsType[*supervisor.TurnLimitError](err); ok {
		f.Kind, f.TurnMS = "turn_limit", e.TurnTime.Milliseconds()
	}
	return f
}

// err is the error again: its text, its type and which it is.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	cause := &recalled{text: f.Cause}
	for _, name := range f.Is {
		if s := sentinels[name]; s != nil {
			cause.is = append(cause.is, s)
		}
	}
	switch f.Kind {
	case "crash":
		return &supervisor.CrashError{Incarnation: f.Incarnation, Reason: supervisor.Reason(f.Reason), Cause: f.Cause, Exit: (*supervisor.Exit)(f.Exit)}
	case "start":
		return &supervisor.StartError{Err: cause, Exit: (*supervisor.Exit)(f.Exit)}
	case "child":
		return &supervisor.ChildError{Command: f.Command, Message: f.Cause, Reason: f.Reason}
	case "command":
		return &supervisor.CommandError{Command: f.Command, Err: cause}
	case "turn_limit":
		return &supervisor.TurnLimitError{TurnTime: time.Duration(f.TurnMS) * time.Millisecond}
	default:
		cause.text = f.Message
		return cause
	}
}

// recalled is an error that was read from a file.
type recalled struct {
	text string
	is   []error
}

func (e *recalled) Error() string   { return e.text }
func (e *recalled) Unwrap() []error { return e.is }
