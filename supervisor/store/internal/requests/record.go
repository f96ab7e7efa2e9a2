package requests

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor"
)

// Version is the version of the layout that this package writes, and the latest
// that it reads.
const Version = 1

// VersionError says that a later program wrote the file.
type VersionError struct{ Got uint32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("outcomes have layout version %d; this program reads up to %d", e.Got, Version)
}

// The lines of a file: a header first, then the two others in any order.
type (
	header struct {
		Type    string `json:"type"` // "outcomes"
		Version uint32 `json:"version"`
	}

	accepted struct {
		Type      string `json:"type"` // "accepted"
		RequestID string `json:"request_id"`
		SHA256    string `json:"sha256"` // of the content, hexadecimal
	}

	ended struct {
		Type        string              `json:"type"` // "ended"
		RequestID   string              `json:"request_id"`
		Outcome     supervisor.Outcome  `json:"outcome"`
		StopReason  protocol.StopReason `json:"stop_reason,omitempty" wire:"default"`
		Usage       protocol.TurnUsage  `json:"usage"`
		Incarnation uint64              `json:"incarnation"`
		Attempt     int                 `json:"attempt,omitzero" wire:"default"`
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
		Reason      string   `json:"reason,omitempty" wire:"default"` // of a crash
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

// room is a line of spaces behind that of a prompt: its outcome goes there if
// the disk takes no more.
type room struct {
	at   int64 // of its first byte
	size int   // with the newline
}

func acceptedOf(id string, digest [sha256.Size]byte) accepted {
	return accepted{Type: "accepted", RequestID: id, SHA256: hex.EncodeToString(digest[:])}
}

// appendAccepted appends the line of a prompt and its room.
func appendAccepted(dst []byte, id string, digest [sha256.Size]byte) ([]byte, room) {
	before := len(dst)
	dst = appendLine(dst, acceptedOf(id, digest))
	free := room{at: int64(len(dst)), size: roomSize + 2*(len(dst)-before)}
	dst = append(dst, bytes.Repeat([]byte(" "), free.size-1)...)
	return append(dst, '\n'), free
}

// appendLine appends v as a line. What is not UTF-8 in it is replaced.
func appendLine(dst []byte, v any) []byte {
	line, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("outcomes: encode: " + err.Error()) // the types above can be encoded
	}
	return append(append(dst, line...), '\n')
}

func endedOf(r supervisor.Result) ended {
	text := textcut.Head(r.Text, maxText)
	return ended{
		Type: "ended", RequestID: r.TurnID, Outcome: r.Outcome, StopReason: r.StopReason, Usage: r.Usage,
		Incarnation: r.Incarnation, Attempt: r.Attempt, Error: failureOf(r.Err), Truncated: r.Truncated || len(text) < len(r.Text), Text: text,
	}
}

// short is e without what can be long: its text, and most of an error's.
func (e ended) short() ended {
	e.Truncated = e.Truncated || e.Text != ""
	e.Text = ""
	if e.Error == nil {
		return e
	}
	f := *e.Error
	f.Message, f.Cause = textcut.Head(f.Message, maxShort), textcut.Head(f.Cause, maxShort)
	if f.Exit != nil {
		f.Exit = &exit{Code: f.Exit.Code, Signal: f.Exit.Signal, Limit: f.Exit.Limit}
	}
	e.Error = &f
	return e
}

func (e ended) result() *supervisor.Result {
	return &supervisor.Result{
		TurnID: e.RequestID, Outcome: e.Outcome, Text: e.Text, Truncated: e.Truncated, StopReason: e.StopReason,
		Usage: e.Usage, Incarnation: e.Incarnation, Attempt: e.Attempt, Err: e.Error.err(),
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
		f.Kind, f.Command, f.Cause = "child", e.Command, e.Message
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
		return &supervisor.ChildError{Command: f.Command, Message: f.Cause}
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

// entry is a prompt as the file has it.
type entry struct {
	id     string
	number int // in the order they were accepted
	digest [sha256.Size]byte
	room   room
	end    *ended // nil while it has no outcome
}

// state is what a file amounts to.
type state struct {
	open     map[string]*entry
	done     []*entry // in the order they ended
	last     *entry   // that was accepted, if nothing but that is after it
	accepted int
}

// rooms are those of what is open.
func (s *state) rooms() map[string]room {
	rooms := map[string]room{}
	for id, e := range s.open {
		if e.room.size > 0 {
			rooms[id] = e.room
		}
	}
	return rooms
}

// waiting is open in order.
func (s *state) waiting() []*entry {
	return slices.SortedFunc(maps.Values(s.open), func(a, b *entry) int { return cmp.Compare(a.number, b.number) })
}

// parse reads a file. data[:good] holds its whole and sound lines, at least the
// header, unless good is 0: then there is none. The error is a *VersionError.
func parse(data []byte) (s *state, good int, err error) {
	s = &state{open: map[string]*entry{}}
	for good < len(data) {
		n := bytes.IndexByte(data[good:], '\n')
		if n < 0 {
			break
		}
		line := data[good : good+n]
		if good > 0 && n > 0 && line[0] == ' ' { // nothing, or an outcome of which the first byte was not written
			if s.last != nil {
				s.last.room = room{at: int64(good), size: n + 1}
			}
			s.last = nil
			good += n + 1
			continue
		}
		s.last = nil
		if good == 0 {
			err = s.header(line)
		} else {
			err = s.apply(line)
		}
		if _, later := errors.AsType[*VersionError](err); later {
			return nil, 0, err
		}
		if err != nil {
			break
		}
		good += n + 1
	}
	return s, good, nil
}

func (s *state) header(line []byte) error {
	var h header
	if err := strict.Unmarshal(line, &h, strict.IgnoreUnknown); err != nil {
		return err
	}
	if h.Type != "outcomes" || h.Version == 0 {
		return errors.New("no header")
	}
	if h.Version > Version {
		return &VersionError{Got: h.Version}
	}
	return nil
}

// apply adds a line. An id that has ended may be accepted again: it had been
// forgotten by then.
func (s *state) apply(line []byte) error {
	if err := strict.Valid(line); err != nil {
		return err
	}
	switch gjson.GetBytes(line, "type").Str {
	case "accepted":
		var a accepted
		if err := strict.Fill(line, &a, strict.IgnoreUnknown); err != nil {
			return err
		}
		sum, err := hex.DecodeString(a.SHA256)
		if err != nil || len(sum) != sha256.Size {
			return errors.New("sha256 is none")
		}
		if s.open[a.RequestID] == nil {
			s.accepted++
			s.last = &entry{id: a.RequestID, number: s.accepted, digest: [sha256.Size]byte(sum)}
			s.open[a.RequestID] = s.last
		}
	case "ended":
		e := &ended{}
		if err := strict.Fill(line, e, strict.IgnoreUnknown); err != nil {
			return err
		}
		if at := s.open[e.RequestID]; at != nil {
			delete(s.open, e.RequestID)
			at.end = e
			s.done = append(s.done, at)
		}
	}
	return nil
}
