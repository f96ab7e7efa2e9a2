package rpc

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/logfile"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
)

// Principal is who makes a call: a client by a key, or an agent by a host call.
type Principal struct {
	Grant auth.Grant
	// Valid ends when the key does; nil for an agent.
	Valid context.Context //nolint:containedctx // its life is the key's, not the request's
	// Agent is the agent that asks; nil for a client.
	Agent *supervisor.Caller
	// Visitor is of an agent of another machine; nil for one of this machine, and for a client.
	Visitor *Visitor
}

// Visitor is what is known of an agent that asks on another machine.
type Visitor struct {
	// Rights are what it may do, as [Access] of its machine has written it; nil if that does not matter.
	Rights jsontext.Value `json:"rights,omitempty"`
	// Waits are those of agents that end with the call, without the caller's own.
	Waits []supervisor.Wait `json:"waits,omitempty"`
}

// MayCall reports why the principal's key is not good for a method; nil if it is.
func (p Principal) MayCall(m api.Method) error {
	if p.Grant.Scope == auth.ScopeRead && m.Effect != api.Reads {
		return api.Denied("the key is good for reading alone, and %s changes something, or starts a program", m.Name)
	}
	return nil
}

// MayReach reports why the principal's key is not good for an agent; nil if it is. id is ""
// for what is of no agent alone.
func (p Principal) MayReach(id string) error {
	if p.Grant.Scope != auth.ScopeAgent || id == p.Grant.AgentID {
		return nil
	}
	return api.Denied("the key is good for agent %s alone", p.Grant.AgentID)
}

// Call is one call on its way. It belongs to the goroutine that serves it.
type Call struct {
	Request jsonrpc.Request
	// Agent is the agent that the call is about; "" for a global method.
	Agent string
	By    Principal
	// RequestID is that of the HTTP request; "" for a host call.
	RequestID string
	// Base is where a client on another machine reaches the server, as in https://one.example:8443; "" for all other callers.
	Base string
	// Forwarded says that another machine has passed the call on, for it is this machine's: it goes nowhere else.
	Forwarded bool
	// Share is what the call's request holds of the Budget; nil for a full key, and for a host call.
	Share *Share
	// Asked is what of another machine is asked for, if the call goes to it: "agent", "session", "run" or "agents"; "" for the machine itself.
	Asked string
	// Stale is since when what the machine that has answered has may be old, as it says; "" for nothing.
	Stale string
	// Incarnation is what the log says; a handler sets it where it knows.
	Incarnation uint64
	// OnBehalfOf is the method for which this one is called, and PlanRun the run of a plan;
	// "" where the principal alone wants it.
	OnBehalfOf, PlanRun string

	router *Router           // that serves it
	facts  map[string]string // that a handler found out, for the audit log
	audit  *logfile.Log      // that has its lines; nil before the first
}

// unrestored is the key of a context by which no saved agent is started.
type unrestored struct{}

// WithoutRestore is a context whose calls find only agents that the server has: one that is saved is not
// started for them, as nobody may want it who looks on (SPEC §6.1).
func WithoutRestore(ctx context.Context) context.Context {
	return context.WithValue(ctx, unrestored{}, true)
}

// Restores reports whether a saved agent is started for a call of that context.
func Restores(ctx context.Context) bool { return ctx.Value(unrestored{}) == nil }

// Note adds what a handler found out to the audit line of its call.
func (c *Call) Note(name, value string) {
	if c.facts == nil {
		c.facts = map[string]string{}
	}
	c.facts[name] = value
}

// Bound is what a caller's change to an agent's permissions and directory stays within. It
// and the Grant of a method's row are the whole rule of which caller may give an agent how
// much (SPEC §6.5, "Grants").
func (c *Call) Bound() protocol.Bound {
	switch {
	case c.By.Agent != nil:
		return protocol.WithinHeld
	case c.By.Grant.Scope != auth.ScopeAgent:
		return protocol.WithinCeiling
	case c.By.Grant.MayGrant:
		return protocol.WithinGranted
	default:
		return protocol.WithinHeld
	}
}
