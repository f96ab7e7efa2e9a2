package api

import (
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

// Place says how an event stands in a stream of events (SPEC §6.4).
type Place int

const (
	// Nowhere: it does not stand there.
	Nowhere Place = iota
	// Bare: the data are the event's frame.
	Bare
	// Owned: the data are {agent_id, seq, event}, where event is the frame.
	Owned
	// OwnedLast is Owned without seq.
	OwnedLast
)

// AgentEvent is the data of an event that is Owned; Seq is 0 where it is OwnedLast.
type AgentEvent struct {
	AgentID string         `json:"agent_id"`
	Seq     uint64         `json:"seq,omitzero"`
	Event   jsontext.Value `json:"event"` // its frame, as it was written
}

// EventType is one row of the table of events.
type EventType struct {
	// Event is the zero value of its Go type.
	Event protocol.Event
	// Agent is its place in GET /agent/{id}/events, All in GET /events.
	Agent, All Place
}

// EventTypes is every event that a stream of events tells, those of a child first: all
// but two of them. A stream may have others of a child of another version, as the child
// wrote them.
func EventTypes() (list []EventType) {
	for _, e := range protocol.Events() {
		switch e.(type) {
		case protocol.Ready, protocol.Response: // the supervisor's
		default:
			list = append(list, EventType{e, Bare, Owned})
		}
	}
	for _, e := range protocol.ServerEvents() {
		row := EventType{e, Bare, Owned}
		switch e.(type) {
		case protocol.StreamOpen, protocol.NodeState:
			row = EventType{e, Nowhere, Bare}
		case protocol.AgentRemoved:
			row = EventType{e, Nowhere, OwnedLast}
		case protocol.StreamEnd:
			row = EventType{e, Bare, Bare}
		}
		list = append(list, row)
	}
	return list
}
