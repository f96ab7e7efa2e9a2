package client

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
)

// Part is a piece of a streamed answer. The set is closed: Text, Restart and, as the
// last one, Result.
type Part interface{ part() }

type (
	// Text is a piece of the answer.
	Text string

	// Restart says that the text before it is void: the agent crashed and the send is
	// tried again (on_crash), or the connection broke and the answer is sent from its
	// start.
	Restart struct{}

	// Result is the outcome of the turn.
	Result api.SendResult
)

func (Text) part()    {}
func (Restart) part() {}
func (Result) part()  {}

// PlanPart is something that a run of a plan tells. The set is closed: the types of
// this file that implement it.
type PlanPart interface {
	// Name is that of the notification (api.PlanStart and so on); "" for PlanResult.
	Name() string
	planPart()
}

type (
	// PlanStart is the first part. Another one says that the connection broke, and that
	// all is sent anew.
	PlanStart api.PlanStartParams

	// TaskStart says who has begun a task.
	TaskStart api.TaskStartParams

	// TaskEnd says how a task ended.
	TaskEnd api.TaskEndParams

	// PlanEnd says how the run ended.
	PlanEnd api.PlanEndParams

	// PlanResult is the last part: the result of the run.
	PlanResult api.RunPlanResult

	// UnknownPart is a notification that this package does not know, as it was read.
	UnknownPart struct {
		Method string
		Params jsontext.Value
	}
)

func (PlanStart) Name() string     { return api.PlanStart }
func (TaskStart) Name() string     { return api.TaskStart }
func (TaskEnd) Name() string       { return api.TaskEnd }
func (PlanEnd) Name() string       { return api.PlanEnd }
func (PlanResult) Name() string    { return "" }
func (p UnknownPart) Name() string { return p.Method }

func (PlanStart) planPart()   {}
func (TaskStart) planPart()   {}
func (TaskEnd) planPart()     {}
func (PlanEnd) planPart()     {}
func (PlanResult) planPart()  {}
func (UnknownPart) planPart() {}

// planPart gives a notification its type.
func planPart(method string, params jsontext.Value) (PlanPart, error) {
	switch method {
	case api.PlanStart:
		return read[PlanStart](method, params)
	case api.TaskStart:
		return read[TaskStart](method, params)
	case api.TaskEnd:
		return read[TaskEnd](method, params)
	case api.PlanEnd:
		return read[PlanEnd](method, params)
	default:
		return UnknownPart{method, params}, nil
	}
}

func read[P PlanPart](method string, params jsontext.Value) (PlanPart, error) {
	var p P
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, fmt.Errorf("call run_plan: read %s: %w", method, err)
	}
	return p, nil
}

// Agent is the id of the agent that an event of a stream of all agents is about; "" for
// an event of the stream itself, and in a stream of one agent.
func (e Event) Agent() string { return gjson.GetBytes(e.Data, "agent_id").Str }

// Decode gives an event its Go type: one of a child's, or of those that a server adds
// (package protocol); in a stream of all agents that of the agent's event. A type that
// is not known is no error but a protocol.UnknownEvent, which has it as it was read.
func (e Event) Decode() (protocol.Event, error) {
	data := []byte(e.Data)
	if gjson.GetBytes(data, "type").Type == gjson.Null { // {agent_id, seq, event}
		data = []byte(gjson.GetBytes(data, "event").Raw)
	}
	event, err := protocol.Frame{Raw: data}.DecodeStreamEvent()
	if err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	return event, nil
}
