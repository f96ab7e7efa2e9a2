package protocol

import "github.com/go-json-experiment/json/jsontext"

// The events that a server adds to those of its agents' children (SPEC §5.6, §6.4).
// They are no child's to say: [Frame.Decode] does not know them, [Frame.DecodeStreamEvent]
// does.
type (
	// AgentState says that an agent has another state.
	AgentState struct {
		State       string `json:"state" enum:"stopped,starting,ready,busy,stopping,backoff,failed"`
		Incarnation uint64 `json:"incarnation"` // counts from 1; 0 before the first
		// Reason is why an incarnation ended, or why this machine of a cluster has the agent. It is for people.
		Reason string `json:"reason,omitzero" wire:"default"`
	}

	// TurnStart says that a prompt was sent to the child.
	TurnStart struct {
		TurnID string `json:"turn_id"`
		// Attempt is 2 where it was sent again; else it is missing.
		Attempt int `json:"attempt,omitzero" wire:"default"`
	}

	// TurnEnd says how a turn ended. Error is for people.
	TurnEnd struct {
		TurnID  string `json:"turn_id"`
		Outcome string `json:"outcome" enum:"completed,cancelled,failed,crashed,timed_out"`
		Error   string `json:"error,omitzero" wire:"default"`
	}

	// Gap stands for events that are not kept any more, by their numbers.
	Gap struct {
		From uint64 `json:"from"`
		To   uint64 `json:"to"`
	}

	// StreamOpen is the first event of a stream of all agents.
	StreamOpen struct {
		// Gap says that there may have been agents since that no event tells of.
		Gap bool `json:"gap,omitzero" wire:"default"`
	}

	// AgentRemoved is the last event of an agent in a stream of all agents.
	AgentRemoved struct {
		Last uint64 `json:"last"` // the number of the event before
	}

	// NodeState says, in a stream of all agents of a cluster, that the events of a machine's agents come no more, or come again.
	NodeState struct {
		Node  string `json:"node"`
		State string `json:"state" enum:"up,lost,left"`
		// Gap says that there may have been agents of the machine since that no event tells of.
		Gap bool `json:"gap,omitzero" wire:"default"`
	}

	// StreamEnd is the last event of a stream.
	StreamEnd struct {
		Reason string `json:"reason" enum:"slow,removed,draining,revoked,crowded"`
		// After is where another stream goes on: a number, or, of all agents, the id of
		// an event; nil where none does.
		After jsontext.Value `json:"after,omitempty" wire:"default" schema:"integer,string"`
	}
)

func (AgentState) Name() string   { return "agent_state" }
func (TurnStart) Name() string    { return "turn_start" }
func (TurnEnd) Name() string      { return "turn_end" }
func (Gap) Name() string          { return "gap" }
func (StreamOpen) Name() string   { return "open" }
func (AgentRemoved) Name() string { return "agent_removed" }
func (NodeState) Name() string    { return "node_state" }
func (StreamEnd) Name() string    { return "end" }

func (AgentState) event()   {}
func (TurnStart) event()    {}
func (TurnEnd) event()      {}
func (Gap) event()          {}
func (StreamOpen) event()   {}
func (AgentRemoved) event() {}
func (NodeState) event()    {}
func (StreamEnd) event()    {}

// serverEvents are the types above, by their names.
var serverEvents = table(ServerEvents()...)

// DecodeStreamEvent is Decode for an event of a server's stream, which is a child's or one
// of the server itself.
func (f Frame) DecodeStreamEvent() (Event, error) {
	if f.Type == "" {
		var err error
		if f, err = NewFrame(f.Raw); err != nil {
			return nil, err
		}
	}
	zero, ok := serverEvents[f.Type]
	if !ok {
		return f.Decode()
	}
	event, err := fill(f.Raw, zero)
	if err != nil {
		return nil, &MemberError{Type: f.Type, Err: err}
	}
	return event, nil
}

// ServerEvents are the zero values of all events that a server adds to those of
// children, in the order of SPEC §5.6 and §6.4.
func ServerEvents() []Event {
	return []Event{AgentState{}, TurnStart{}, TurnEnd{}, Gap{}, StreamOpen{}, AgentRemoved{}, NodeState{}, StreamEnd{}}
}
