package store

import (
	"fmt"
	"iter"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/segmentlog"
)

// ErrInUse says that another process has the records of the agent open.
var ErrInUse = segmentlog.ErrInUse

// Store keeps the records of agents by the agents' names. An agent of which
// nothing is kept is no error: it has no records.
//
// Clone, Rename and Delete are for agents whose records nobody has open. A process
// may be killed within each: calling it again finishes it.
type Store interface {
	// Open opens the events and requests of an agent, for this process alone; the
	// error wraps ErrInUse if another one has them. With fresh those of an earlier
	// agent of that name are removed before. The caller closes what it gets.
	Open(agent string, fresh bool) (supervisor.Records, error)
	// Outcome returns how a request to an agent whose records are not open ended; ""
	// if that is not kept. One that was accepted and did not end has crashed.
	Outcome(agent, request string) (supervisor.Outcome, error)
	// Events yields the events above a number in order, of an agent whose records
	// are open or not. A number left out is not kept. An error ends the sequence.
	Events(agent string, after uint64) iter.Seq2[supervisor.Event, error]

	// Account returns what the agent used and its limits; nil if nothing is kept. The
	// error is a *DamagedError, or what may pass.
	Account(agent string) (*Account, error)
	// SetAccount replaces it, all or nothing; nil removes it. It may be called while the
	// records are open.
	SetAccount(agent string, a *Account) error

	// Clone replaces what is kept of the agent to by a copy of from's account, which is
	// what belongs to a conversation. From may be open.
	Clone(from, to string) error
	// Rename gives all that is kept of from to the agent to, of which nothing is kept.
	Rename(from, to string) error
	// Delete removes all that is kept of an agent.
	Delete(agent string) error
	// Retain deletes what is kept of each agent for which keep is false.
	Retain(keep func(agent string) bool) error

	// Close ends the store. The records of agents are closed before.
	Close()
}

// Account is what an agent used, and the limits that are its own.
type Account struct {
	Parent        string  `json:"parent,omitempty" wire:"default"` // the agent that made it
	Limits        *Limits `json:"limits,omitzero"`                 // nil: it has none of its own
	Spent         uint64  `json:"spent_tokens"`                    // with those of the agents that it made
	Requests      uint64  `json:"requests"`
	Estimated     uint64  `json:"estimated_requests"`
	Input         uint64  `json:"input_tokens"`
	Output        uint64  `json:"output_tokens"`
	CacheRead     uint64  `json:"cache_read_input_tokens"`
	CacheCreation uint64  `json:"cache_creation_input_tokens"`
	// In US dollars: what the agent used, and with those of the agents that it made.
	Cost     float64 `json:"cost_usd,omitzero" wire:"default"`
	SpentUSD float64 `json:"spent_usd,omitzero" wire:"default"`
}

// Limits are those of an agent with all agents that it made. Zero is no limit.
type Limits struct {
	Tokens            uint64 `json:"tokens"`
	RequestsPerMinute uint64 `json:"requests_per_minute"`
	TokensPerMinute   uint64 `json:"tokens_per_minute"`
	Concurrent        uint64 `json:"concurrent"`
	// CostUSD is in US dollars.
	CostUSD float64 `json:"cost_usd,omitzero" wire:"default"`
	// Agents is nil where an earlier server, which did not bound them, wrote it.
	Agents *uint64 `json:"agents,omitzero"`

	Process *protocol.ProcessLimits `json:"process,omitzero"`
}

// DamagedError says that what an agent used, and its limits, cannot be read, so that
// neither it nor an agent that it made may start: they would have fewer limits.
type DamagedError struct {
	Agent string
	Place string // where the store has it
	Err   error  // what is wrong with it
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("what agent %s used of its limits, %s: %v", e.Agent, e.Place, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }
