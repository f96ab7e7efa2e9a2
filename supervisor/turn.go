package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/tracing"
)

// MaxText is how much of a turn's text Read and a Result give, in bytes (SPEC
// §7). The events carry all of it.
const MaxText = 8 << 20

// MaxRead is how much text one Read returns at most, in bytes.
const MaxRead = 256 << 10

// WhenBusy says what becomes of a prompt to an agent that has one already.
type WhenBusy int

const (
	Queue  WhenBusy = iota // it waits, first in, first out
	Reject                 // it is refused with ErrBusy
	Steer                  // the running turn is cancelled, then this one runs
	Next                   // it waits before all others, as it belongs to a turn that had its place
)

// String is the name that callers of the façade use.
func (w WhenBusy) String() string {
	switch w {
	case Queue:
		return "queue"
	case Reject:
		return "reject"
	case Steer:
		return "steer"
	case Next:
		return "next"
	default:
		return fmt.Sprintf("WhenBusy(%d)", int(w))
	}
}

// PromptOptions are how a prompt is to be run. The zero value waits in the
// queue and runs without a limit of time.
type PromptOptions struct {
	WhenBusy WhenBusy
	// Timeout bounds the time that the turn runs, waiting not counted; 0 means
	// none. A turn that exceeds it is cancelled and ends with ErrTurnTimeout.
	Timeout time.Duration
	// Retry says that a turn whose process crashes is sent once more after the
	// restart, unless it was cancelled, timed out or had ended by then, or the
	// agent fails. Timeout bounds both together.
	Retry bool
	// Unnamed says that the id was made for this prompt, and is told to its sender with the outcome
	// alone: nobody can repeat the prompt.
	Unnamed bool
	// Hold keeps the turns that wait from beginning once this one has ended, until a prompt with
	// Next is accepted or Release is called, which must be.
	Hold bool
	// Limited names on whose behalf the prompt comes, if that has but a share of the places: half of
	// them, and three quarters together with all others that are limited; "" may have all.
	Limited string
	// Check, unless nil, is asked by Delegate before an attempt that had to wait begins.
	// What begins as soon as it is accepted is not checked.
	Check TurnCheck
}

// TurnCheck decides whether a turn that had to wait may begin.
type TurnCheck interface {
	// CheckTurn may block; ctx is that of the prompt. With an error the turn does not run,
	// and ends as failed with it.
	CheckTurn(ctx context.Context) error
}

// Outcome is how an accepted prompt ended. It has exactly one.
type Outcome string

// The outcomes of SPEC §5.3.
const (
	Completed Outcome = "completed"
	Cancelled Outcome = "cancelled" // Err is ErrAborted, with the reason
	Erred     Outcome = "failed"    // Err is a *ChildError, a *StartError, or that of PromptOptions.Check
	Crashed   Outcome = "crashed"   // Err is a *CrashError, or ErrFailed
	TimedOut  Outcome = "timed_out" // Err is ErrTurnTimeout, or a *TurnLimitError
)

// Result is what a turn gave.
type Result struct {
	TurnID string
	// Outcome is "" only with an Err that is ErrMoved, ErrNoRoom or ErrNoMajority: it is not known here.
	Outcome Outcome
	// Text is all that the model said, at most MaxText bytes. What was said
	// before and after a tool call is set apart by an empty line.
	Text string
	// Truncated says that Text is not all of it.
	Truncated   bool
	StopReason  protocol.StopReason // "" if the turn had no agent_end
	Usage       protocol.TurnUsage
	Incarnation uint64 // that ran it last; 0 if it never ran, or that is not known
	Attempt     int    // how often it was sent to the child; 0 as for Incarnation
	// Ran is how long it took, from its first attempt on: without the wait before it. Of a recorded
	// turn in whole milliseconds.
	Ran time.Duration
	// Replayed says that the prompt's id had been used before and this is the
	// outcome recorded then.
	Replayed bool
	Err      error // nil if Outcome is Completed
}

// Turn is one accepted prompt: waiting, running or ended.
type Turn struct {
	id      string
	digest  [sha256.Size]byte // of the prompt's content
	retry   bool
	unnamed bool          // PromptOptions.Unnamed
	of      string        // PromptOptions.Limited
	done    chan struct{} // closed when result is recorded and published

	agent *Agent

	// The rest is a part of the agent's state until done is closed, and does not
	// change after.
	recorded    chan struct{}   // closed once the turn is recorded, or is not to be; nil if nobody waits for that
	prompt      protocol.Prompt // until it is sent for the last time
	size        int             // of prompt, in bytes as the bounds count; 0 without one
	limit       time.Duration   // of what is left to run, when it does not; 0 for none
	late        error           // what it ends with if it exceeds that
	began       time.Time       // of the attempt
	first       time.Time       // of the first attempt
	attempt     int             // counts from 1; 0 before it ran
	incarnation uint64
	text        []byte        // of the attempt; only ever appended to, so what was read stays valid
	more        chan struct{} // closed when text grows; nil if nobody waits for that
	afterTool   bool          // a tool was called since the last text
	truncated   bool
	end         *protocol.AgentEnd
	fault       string // what the child's last error for this turn said
	faulted     bool
	abort       *time.Timer // runs once abort was sent
	deadline    *time.Timer
	reason      error          // why it is being cancelled, nil if nobody asked
	trace       tracing.Parent // that what the turn does belongs to
	endSpan     tracing.End
	check       TurnCheck       // before an attempt that had to wait; nil for none
	asker       context.Context //nolint:containedctx // of the prompt, for check
	checking    bool            // it is under way
	hold        bool            // none begins after it until it is released
	ended       bool            // result is final
	result      Result
}

func (s *agentState) newTurn(p protocol.Prompt, digest [sha256.Size]byte, o PromptOptions) *Turn {
	t := &Turn{agent: s.agent, id: p.ID, digest: digest, retry: o.Retry, unnamed: o.Unnamed, of: o.Limited, prompt: p, hold: o.Hold, done: make(chan struct{})}
	t.limit, t.late = timed(s.limits, o)
	return t
}

func (t *Turn) begin(incarnation uint64) {
	t.incarnation = incarnation
	t.attempt++
	t.began = time.Now()
	if t.attempt == 1 {
		t.first = t.began
	}
	t.text, t.afterTool, t.truncated = nil, false, false
	t.fault, t.faulted = "", false
}

func (t *Turn) repeatable() bool { return t.retry && t.attempt == 1 }

func (t *Turn) stopTimers() {
	for _, timer := range []*time.Timer{t.abort, t.deadline} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// ID is the prompt's id.
func (t *Turn) ID() string { return t.id }

// Place is how far a turn's text was read. The zero value is its beginning.
type Place struct {
	Attempt int // the attempt that Offset is in; 0 for the one that runs
	Offset  int // bytes of its text
}

// Read returns what was said beyond a place, at most MaxRead bytes of whole
// characters, waiting for some, and the place after it. An attempt above that of
// at says that the turn was sent again: what was read before is void. Nothing is
// lost on a slow reader, and one that joins late begins where the turn began:
// what is read of the last attempt to the end is the Result's Text. Errors: io.EOF
// when the turn has ended and all was read, and that of ctx; the turn goes on
// then. Any number of goroutines may read, each from its own place.
func (t *Turn) Read(ctx context.Context, at Place) (string, Place, error) {
	for {
		select {
		case <-t.done:
			at = at.in(t.result.Attempt)
			rest := t.result.Text[min(at.Offset, len(t.result.Text)):]
			if rest == "" {
				return "", at, io.EOF
			}
			rest = textcut.Head(rest, MaxRead)
			at.Offset += len(rest)
			return rest, at, nil
		default:
		}
		text, next, more := t.said(at)
		if len(text) > 0 {
			text = textcut.Head(text, MaxRead)
			next.Offset += len(text)
			return string(text), next, nil
		}
		select {
		case <-more:
		case <-t.done:
		case <-ctx.Done():
			return "", at, ctx.Err()
		}
	}
}

// in is the place in the text of that attempt.
func (p Place) in(attempt int) Place {
	if p.Attempt == 0 || p.Attempt == attempt {
		return Place{Attempt: attempt, Offset: p.Offset}
	}
	return Place{Attempt: attempt}
}

// said is the text beyond a place, and the place in the text that there is; or,
// if there is none, a channel that is closed when there is.
func (t *Turn) said(at Place) (text []byte, next Place, more <-chan struct{}) {
	t.agent.update(func(*agentState) []effect {
		if next = at.in(t.attempt); next.Offset < len(t.text) {
			text = t.text[next.Offset:]
			return nil
		}
		if t.more == nil {
			t.more = make(chan struct{})
		}
		more = t.more
		return nil
	})
	return text, next, more
}

// Wait waits for the outcome; all events of the turn have been published then.
// The error is the Result's: nil, ErrAborted, ErrTurnTimeout, *ChildError,
// *CrashError or *StartError. If ctx ends first, the error is that of ctx and
// the turn goes on.
func (t *Turn) Wait(ctx context.Context) (Result, error) {
	select {
	case <-t.done:
		return t.result, t.result.Err
	default:
	}
	select {
	case <-t.done:
		return t.result, t.result.Err
	case <-ctx.Done():
		return Result{TurnID: t.id}, ctx.Err()
	}
}

// Release lets the next turn begin after one that was prompted with Hold. It may be called at any
// time, and again.
func (t *Turn) Release() {
	if t.agent == nil {
		return // a replay
	}
	t.agent.update(func(s *agentState) []effect {
		t.hold = false
		if s.turns.holder == t {
			s.turns.holder = nil
			s.next()
		}
		return s.here()
	})
}

func (t *Turn) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// replay is an ended turn as the answer to a repeated id.
func (t *Turn) replay() *Turn {
	again := *t
	again.result.Replayed = true
	return &again
}

var textDelta = []byte(`{"type":"message_update","event":{"type":"text_delta",`)

// take adds a message_update to the turn's text.
func (t *Turn) take(raw []byte) {
	event := gjson.GetBytes(raw, "event")
	if !bytes.HasPrefix(raw, textDelta) {
		switch event.Get("type").Str {
		case "text_delta":
		case "toolcall_start":
			t.afterTool = len(t.text) > 0
			return
		default:
			return
		}
	}
	delta := event.Get("delta").String()
	if delta == "" || t.truncated {
		return
	}
	if t.afterTool {
		t.afterTool = false
		delta = "\n\n" + delta
	}
	if room := MaxText - len(t.text); len(delta) > room {
		t.truncated = true
		delta = textcut.Head(delta, room)
	}
	t.text = append(t.text, delta...)
	if t.more != nil {
		close(t.more)
		t.more = nil
	}
}

// beginSpan begins the turn's span, under the parent that ctx has, and lets the child know
// of it.
func (t *Turn) beginSpan(ctx context.Context) {
	if a := t.agent; a.sup.trace != nil {
		ctx, t.endSpan = a.sup.trace.Begin(ctx, tracing.Internal, "turn",
			tracing.String("nexus.agent.id", a.spec.ID), tracing.String("nexus.turn.id", t.id))
	}
	t.trace = tracing.From(ctx)
	t.prompt.Traceparent = t.trace.String()
}

// finishSpan ends the turn's span.
func (t *Turn) finishSpan() {
	if t.endSpan == nil {
		return
	}
	fault := ""
	if t.result.Outcome != Completed {
		fault = string(t.result.Outcome)
	}
	used := t.result.Usage
	t.endSpan(fault, tracing.Int("nexus.incarnation", int64(t.result.Incarnation)), tracing.Int("nexus.attempt", int64(t.result.Attempt)),
		tracing.Int("gen_ai.usage.input_tokens", int64(used.InputTokens)), tracing.Int("gen_ai.usage.output_tokens", int64(used.OutputTokens)))
}

// digest is what tells two prompts of one id apart.
func digest(p protocol.Prompt) [sha256.Size]byte {
	if len(p.Attachments) == 0 {
		return sha256.Sum256([]byte(p.Message))
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s", len(p.Message), p.Message)
	for _, at := range p.Attachments {
		fmt.Fprintf(h, "%q", at.Path)
		for _, s := range []*string{at.Name, at.Mime} {
			if s == nil {
				fmt.Fprint(h, "-")
			} else {
				fmt.Fprintf(h, "%q", *s)
			}
		}
		if at.Path == "" { // earlier versions had nothing but paths
			fmt.Fprintf(h, "%q%q", protocol.Value(at.Text), protocol.Value(at.Data))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
