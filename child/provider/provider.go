// Package provider is the seam between an agent and its model. A Provider
// streams one answer at a time; packages below this one speak to real services
// (openai and anthropic, both through httpapi) or stand in for one (scripted).
package provider

import (
	"context"
	"errors"
	"iter"
	"time"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// ErrContextWindow says that the request holds more tokens than the model can
// take. The error that wraps it says what the model's service said.
var ErrContextWindow = errors.New("the model's context window is exceeded")

// Error is why there is no answer. Its text is for the asker: it may repeat
// what the service said, and that may be the prompt.
type Error struct {
	// Brief is what a log may have: our own words, the status of HTTP.
	Brief string
	// Reason is protocol.RateLimited and the like; "" for any other.
	Reason string
	// RetryAfter is how long the service wants to be left alone; 0 if it does not say.
	RetryAfter time.Duration
	// Refused says that the service refused what it was asked, for good: it would refuse each request
	// that has it.
	Refused bool
	Err     error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Brief is an error for a log: without what a model's service said, if it said
// anything. Err is not nil.
func Brief(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Brief
	}
	return err.Error()
}

// Provider is a source of answers. It is safe for concurrent use.
type Provider interface {
	// Stream asks for one answer. The sequence ends after Stop, or with an
	// error as its last element. Ending the iteration or ctx releases the
	// request at once. A context window that is exceeded is ErrContextWindow.
	Stream(ctx context.Context, r Request) iter.Seq2[Delta, error]
	// Models lists what could be asked for.
	Models(ctx context.Context) ([]protocol.Model, error)
}

// Request is all that an answer depends on.
type Request struct {
	Model  string
	System string
	// Messages must not be changed: they are the conversation itself.
	Messages []protocol.Message
	// TextBytes is the sum of TextBytes over Messages where the caller keeps
	// count; 0 means that it does not.
	TextBytes uint64
	Tools     []tool.Spec
	// Parameters are nil where all is as the service does.
	Parameters *Parameters
	// Images reads the images of messages; nil: none can be read. An image that
	// cannot be read is described to the model.
	Images ImageReader
	// Lost, if it is not nil, is where a provider that asks a service adds what tries
	// used that did not come to their end, as far as the service had begun to answer.
	// It must not be read before the end of Stream.
	Lost *protocol.TurnUsage
}

// Parameters are what an answer is to be like. A service that takes one of them not is asked
// without it.
type Parameters struct {
	Temperature *float64 // from 0 to 2; nil is that of the service
	MaxOutput   int      // tokens of the answer; 0 is as the service does
	Effort      string   // of reasoning: low, medium or high; "" is as the model does
}

// ImageReader reads images of a conversation. It is safe for concurrent use.
type ImageReader interface {
	Get(image protocol.Image) ([]byte, error)
}

// TextBytes is how many bytes of a message a model is charged for: its text,
// its reasoning, and the names and inputs of its calls.
func TextBytes(m protocol.Message) uint64 {
	n := len(m.Content) + len(m.Thinking)
	for _, c := range m.ToolCalls {
		n += len(c.Name) + len(c.Input)
	}
	return uint64(n)
}

// Delta is one step of an answer. The set is closed.
type Delta interface{ delta() }

type (
	// Text is a piece of the answer.
	Text struct{ Text string }
	// Thinking is a piece of the model's reasoning.
	Thinking struct{ Text string }
	// ThinkingSignature is what the provider wants to find in the answer's
	// message as ThinkingSignature, opaque and whole: JSON, at most 256 KiB of
	// UTF-8.
	// It comes at most once, before Stop.
	ThinkingSignature struct{ Text string }
	// CallStart opens a tool call; its input follows in pieces.
	CallStart struct{ ID, Name string }
	// CallInput is a piece of a call's JSON input.
	CallInput struct{ ID, Fragment string }
	// Call is a whole call. It follows its CallStart and CallInputs.
	Call struct{ protocol.ToolCall }
	// Retry says that an attempt failed and another will follow after a wait. The
	// reason is for a log, and has nothing of what a service said.
	Retry struct {
		Reason      string
		Attempt     int // the one that follows, from 1
		MaxAttempts int
		Wait        time.Duration
	}
	// Switched says that another provider answers in the place of one that is down.
	Switched struct {
		Model  string // the name under which it was given
		Reason string // as of a Retry
	}
	// Stop is the last element of an answer that came to its end.
	Stop struct {
		// Usage counts all tokens of the prompt as InputTokens; those of the
		// cache are a part of them. What the service did not count is an estimate.
		Usage protocol.TurnUsage
		// Reason is "" where the provider does not say.
		Reason FinishReason
	}
)

// FinishReason says why a model stopped by itself.
type FinishReason string

// The reasons of a Stop.
const (
	FinishStop      FinishReason = "stop"           // it had said all
	FinishToolCalls FinishReason = "tool_calls"     // it waits for its tools
	FinishLength    FinishReason = "length"         // it ran into a limit of tokens or of its service
	FinishFiltered  FinishReason = "content_filter" // it refused, or its service held the rest back
)

func (Text) delta()              {}
func (Thinking) delta()          {}
func (ThinkingSignature) delta() {}
func (CallStart) delta()         {}
func (CallInput) delta()         {}
func (Call) delta()              {}
func (Retry) delta()             {}
func (Switched) delta()          {}
func (Stop) delta()              {}
