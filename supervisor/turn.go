package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
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
}

// Outcome is how an accepted prompt ended. It has exactly one.
type Outcome string

// The outcomes of SPEC §5.3.
const (
	Completed Outcome = "completed"
	Cancelled Outcome = "cancelled" // Err is ErrAborted, with the reason
	Erred     Outcome = "failed"    // Err is a *ChildError, or a *StartError
	Crashed   Outcome = "crashed"   // Err is a *CrashError
	TimedOut  Outcome = "timed_out" // Err is ErrTurnTimeout
)

// Result is what a turn gave.
type Result struct {
	TurnID  string
	Outcome Outcome
	// Text is all that the model said, at most MaxText bytes. What was said
	// before and after a tool call is set apart by an empty line.
	Text string
	// Truncated says that Text is not all of it.
	Truncated   bool
	StopReason  protocol.StopReason // "" if the turn had no agent_end
	Usage       protocol.TurnUsage
	Incarnation uint64 // that ran it; 0 if it never ran
	// Replayed says that the prompt's id had been used before and this is the
	// outcome recorded then.
	Replayed bool
	Err      error // nil if Outcome is Completed
}

// Turn is one accepted prompt: waiting, running or ended.
type Turn struct {
	id     string
	digest [sha256.Size]byte // of the prompt's content
	limit  time.Duration
	done   chan struct{} // closed when result is final

	// The rest is guarded by mu, the agent's mutex, until done is closed, and
	// does not change after.
	mu          *sync.Mutex
	prompt      protocol.Prompt // until it is sent
	incarnation uint64
	text        []byte        // only ever appended to, so what was read stays valid
	more        chan struct{} // closed when text grows; nil if nobody waits for that
	afterTool   bool          // a tool was called since the last text
	truncated   bool
	end         *protocol.AgentEnd
	fault       string // what the child's last error for this turn said
	faulted     bool
	abort       *time.Timer // runs once abort was sent
	deadline    *time.Timer
	reason      error // why it is being cancelled, nil if nobody asked
	result      Result
}

func newTurn(mu *sync.Mutex, p protocol.Prompt, digest [sha256.Size]byte, o PromptOptions) *Turn {
	return &Turn{mu: mu, id: p.ID, digest: digest, limit: o.Timeout, prompt: p, done: make(chan struct{})}
}

// ID is the prompt's id.
func (t *Turn) ID() string { return t.id }

// Read returns what was said beyond the first from bytes, at most MaxRead bytes
// of whole characters, waiting for some; from is 0 or the end of an earlier
// Read. Nothing is lost on a slow reader, and one that joins late begins where
// the turn began: what is read to the end is the Result's Text. Errors: io.EOF
// when the turn has ended and all was read, and that of ctx; the turn goes on
// then. Any number of goroutines may read, each from its own place.
func (t *Turn) Read(ctx context.Context, from int) (string, error) {
	for {
		select {
		case <-t.done:
			if from >= len(t.result.Text) {
				return "", io.EOF
			}
			return t.result.Text[from : from+whole(t.result.Text[from:], MaxRead)], nil
		default:
		}
		text, more := t.said(from)
		if len(text) > 0 {
			return string(text[:whole(text, MaxRead)]), nil
		}
		select {
		case <-more:
		case <-t.done:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// said is the text beyond from, or, if there is none, a channel that is closed
// when there is.
func (t *Turn) said(from int) (text []byte, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from < len(t.text) {
		return t.text[from:], nil
	}
	if t.more == nil {
		t.more = make(chan struct{})
	}
	return nil, t.more
}

// whole is the length of the longest part of text, from its start, that has at
// most limit bytes and ends with a whole character.
func whole[T string | []byte](text T, limit int) int {
	if len(text) <= limit {
		return len(text)
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return limit
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
		delta = delta[:whole(delta, room)]
	}
	t.text = append(t.text, delta...)
	if t.more != nil {
		close(t.more)
		t.more = nil
	}
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
	}
	return [sha256.Size]byte(h.Sum(nil))
}
