// Package turn runs one turn of a conversation: it asks the provider, runs the
// tools it calls for, and asks again, until there is an answer.
//
//	c := turn.Compactor{Provider: p, Model: "m", Conversation: messages, Journal: j, Log: log}
//	r := turn.Runner{Compactor: c, Tools: registry, CompactAt: 80, MaxIterations: 50, Listener: listener}
//	result := r.Run(ctx, turn.Input{ID: "1", Message: "hello"})
//	done, err := c.Compact(ctx, old) // between turns
//
// Run uses the caller's goroutine and those of the tool registry, which joins
// them. Whatever ends a turn (an error, a panic of the provider, the end of
// ctx, the iteration limit), the conversation is left whole: partial text is kept and
// marked interrupted, and every call has a result. The caller writes the events
// that close the turn and its record. See SPEC.md §3.4, §4 and §4.8.
package turn

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// Recorder is where a turn is saved as it goes.
type Recorder interface {
	// Append saves whole records.
	Append(records ...transcript.Record) error
	// AppendLater leaves a record to the next Append, which follows at once.
	AppendLater(r transcript.Record) error
	// Commit saves them on the disk, or not at all.
	Commit(records ...transcript.Record) error
	// Partial saves a piece of an answer, soon.
	Partial(turnID, text, thinking string)
}

// Runner is what a turn needs. All fields are required but those that say what
// their zero value means.
type Runner struct {
	Compactor
	System        string
	Tools         *tool.Registry // nil: there are none
	MaxIterations int            // provider calls, at least 1
	// CompactAt is the percentage of what the context window has available at
	// which old messages give way to a summary before a call; 0 means never.
	CompactAt  int
	Parameters *provider.Parameters // of requests; may be nil
	// Images reads the images of messages; nil: none can be read.
	Images provider.ImageReader
	Listener
}

// Listener is told how a turn gets on, by one goroutine at a time. The turn waits for it.
type Listener interface {
	// Emit passes on one step.
	Emit(e protocol.AssistantEvent)
	// Compacted says that old messages gave way to a summary.
	Compacted()
}

// Input is what a turn begins with.
type Input struct {
	ID          string // of the prompt
	Message     string
	Attachments []protocol.Attachment
	Images      []protocol.Image
	// Source and SourceAgentID are those of the message.
	Source, SourceAgentID string
	// At is the time of the message, UTC; the zero time is now.
	At time.Time
}

// Result is how a turn ended.
type Result struct {
	Stop  protocol.StopReason
	Usage protocol.TurnUsage
	// Err says what went wrong; nil unless Stop is StopError.
	Err error
}

var (
	// ErrIncomplete says that the provider's answer ended without its end.
	ErrIncomplete = errors.New("the provider's answer broke off")
	// ErrCutCall says that the answer ended within a call.
	ErrCutCall = errors.New("the model's answer ran into its limit of tokens in the middle of a tool call")
	// ErrEndless says that the answer was ended for its length.
	ErrEndless = fmt.Errorf("the model's answer exceeds %d MiB", conversation.MaxAnswer>>20)
	// ErrHeldBack says that there is no answer, and that this is on purpose.
	ErrHeldBack = errors.New("the model's service held the answer back")
)

// Run runs one turn to its end. It returns soon after ctx ends.
func (r Runner) Run(ctx context.Context, in Input) Result {
	t := &run{Runner: r, id: in.ID, used: map[string]bool{}}
	err := t.add(protocol.Message{
		Role: protocol.RoleUser, Content: in.Message, Attachments: in.Attachments, Images: in.Images,
		Source: in.Source, SourceAgentID: in.SourceAgentID, At: in.At,
	}, nil)
	for iteration := 0; err == nil; iteration++ {
		if iteration == r.MaxIterations {
			return Result{Stop: protocol.StopMaxIterations, Usage: t.usage}
		}
		var calls []protocol.ToolCall
		var stop protocol.StopReason
		calls, stop, err = t.nextAnswer(ctx)
		if err == nil && len(calls) == 0 {
			return Result{Stop: stop, Usage: t.usage}
		}
		if failed := t.runTools(ctx, calls, err); err == nil {
			err = failed
		}
	}
	if ctx.Err() != nil {
		return Result{Stop: protocol.StopAborted, Usage: t.usage}
	}
	return Result{Stop: protocol.StopError, Usage: t.usage, Err: err}
}

// run is the state of one Run.
type run struct {
	Runner
	id    string
	usage protocol.TurnUsage
	used  map[string]bool // ids of calls in this turn
	// compacted says that old messages gave way to a summary, or that this was
	// tried: once in a turn is enough.
	compacted bool
	// unsummarised says that this was tried, and failed.
	unsummarised bool
	// first is the first message of requests: what is before it was to give way
	// to a summary, and is too large to be sent without one.
	first int
}

// add puts a message into the conversation and the journal. The conversation has it even
// where the journal fails: the journal catches up.
func (t *run) add(m protocol.Message, usage *protocol.TurnUsage) error {
	return t.Journal.Append(t.converse(m, usage))
}

// addLast is add for the last message of a turn that succeeds: the caller's record of the
// turn's end is about to follow.
func (t *run) addLast(m protocol.Message, usage *protocol.TurnUsage) error {
	return t.Journal.AppendLater(t.converse(m, usage))
}

// converse puts a message into the conversation and returns its record.
func (t *run) converse(m protocol.Message, usage *protocol.TurnUsage) transcript.Message {
	m.TurnID = t.id
	if m.At.IsZero() {
		m.At = time.Now().UTC()
	}
	t.Conversation.Add(m)
	return transcript.Message{Message: m, Usage: usage}
}

// nextAnswer gets one answer, saves it, and returns the calls it asks for, those of a failed
// answer included. If there are none, stop is how the turn ends.
func (t *run) nextAnswer(ctx context.Context) (calls []protocol.ToolCall, stop protocol.StopReason, err error) {
	a, err := t.requestAnswer(ctx)
	if a == nil {
		return nil, "", err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if err == nil {
		err = a.check()
	}
	usage := a.usageOrEstimate()
	if usage != nil {
		t.usage.Add(*usage)
	}
	if m := a.message(); m.Content != "" || m.Thinking != "" || len(m.ToolCalls) > 0 || err == nil {
		m.Interrupted = err != nil
		save := t.add
		if err == nil && len(a.calls) == 0 {
			save = t.addLast
		}
		if saved := save(m, usage); err == nil {
			err = saved
		}
	}
	a.closeUnfinished()
	return a.calls, a.stop(), err
}

// stream feeds the answer. A panic of the provider is an error.
func (t *run) stream(ctx context.Context, request provider.Request, a *answer) (err error) {
	defer func() {
		if v := recover(); v != nil {
			t.Log.Error("provider panicked", zap.Any("panic", v), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("the provider panicked: %v", v)
		}
	}()
	for delta, err := range t.Provider.Stream(ctx, request) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if a.exceeds(delta) {
			return ErrEndless
		}
		a.apply(delta)
	}
	return nil
}

// runTools carries out the calls, or where the answer they came with failed,
// gives each a result that says so.
func (t *run) runTools(ctx context.Context, calls []protocol.ToolCall, why error) error {
	if len(calls) == 0 {
		return nil
	}
	var outcomes []tool.Outcome
	switch {
	case ctx.Err() != nil:
		outcomes = t.refuse(calls, "cancelled")
	case why != nil:
		outcomes = t.refuse(calls, "not run: the turn failed")
	case t.Tools == nil:
		outcomes = t.refuse(calls, "there are no tools")
	default:
		outcomes = t.Tools.Run(ctx, t.id, calls, t)
	}
	var records []transcript.Record
	for _, o := range outcomes {
		m := protocol.Message{
			Role: protocol.RoleTool, Content: o.Text, IsError: o.IsError, Images: o.Images,
			Changed: o.Changed, Created: o.Created, ToolCallID: o.Call.ID, ToolName: o.Call.Name, TurnID: t.id, At: time.Now().UTC(),
		}
		t.Conversation.Add(m)
		records = append(records, transcript.Message{Message: m})
	}
	if err := t.Journal.Append(records...); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// refuse gives each call a result that says why it is not run.
func (t *run) refuse(calls []protocol.ToolCall, why string) []tool.Outcome {
	var outcomes []tool.Outcome
	for _, c := range calls {
		o := tool.Outcome{Call: c, Result: tool.Result{Text: why, IsError: true}}
		t.Done(o)
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// Output implements [tool.Watcher].
func (t *run) Output(c protocol.ToolCall, text string) {
	t.Emit(protocol.ToolcallOutputDelta{ToolID: c.ID, Delta: text})
}

// Done implements [tool.Watcher].
func (t *run) Done(o tool.Outcome) {
	t.Emit(protocol.ToolcallResult{ToolID: o.Call.ID, Result: o.Text, IsError: o.IsError})
}
