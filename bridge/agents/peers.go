package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/supervisor"
)

// may is what an agent may do, as far as two agents are compared by it.
type may struct {
	// Permissions has the working directory among its paths. Of a program of another make they are [rights.OfProgram].
	Permissions protocol.Permissions `json:"permissions"`
	Allowances  []protocol.Allowance `json:"allowances"`
	Env         string               `json:"env"` // the digest of the variables that its programs get
	// Unconfined says that it runs as a program of another make that nothing confines: what it asks is decided
	// by the permissions, what it does without asking is not.
	Unconfined bool `json:"unconfined"`
}

// mayOf asks an agent what it may do. The error says so if it cannot tell.
func (x Access) mayOf(ctx context.Context, a *supervisor.Agent) (may, error) {
	state, err := Ask(ctx, x.r, a, protocol.GetState{})
	if err != nil {
		return may{}, err
	}
	held := state.Permissions
	if held.Ceiling.Preset == "" {
		return may{}, &supervisor.ChildError{Command: "get_state", Message: "the child's answer cannot be read: it does not say what the agent may do"}
	}
	program, permissions := state.Program, held.Ceiling
	if program != nil {
		permissions = rights.OfProgram(permissions)
	}
	return may{
		Permissions: permissions, Allowances: held.Allowed, Env: a.Info().Labels.EnvDigest,
		Unconfined: program != nil && !program.Sandbox && held.Ceiling.Preset != rights.Sandboxed,
	}, nil
}

// beyond names what an agent may do that another one may not.
func (m may) beyond(other may) []string {
	over := append(rights.Beyond(m.Permissions, other.Permissions), rights.BeyondAllowances(m.Allowances, other.Allowances)...)
	if m.Env != other.Env && m.Env != digest((*map[string]string)(nil)) {
		over = append(over, "its environment variables")
	}
	if m.Unconfined && !other.Unconfined && other.Permissions.Preset != rights.Yolo {
		over = append(over, "run a program that nothing confines")
	}
	return over
}

// callerMay is what an agent that asks may do.
func (x Access) callerMay(ctx context.Context, by rpc.Principal) (mine may, err error) {
	if by.Visitor != nil {
		if err := json.Unmarshal(by.Visitor.Rights, &mine); err != nil {
			return may{}, fmt.Errorf("what %s may do, as its machine says: %w", by.Agent.AgentID, err)
		}
		return mine, nil
	}
	self, err := x.r.o.Supervisor.Agent(by.Agent.AgentID)
	if err != nil {
		return may{}, Destroyed(by.Agent.AgentID, err)
	}
	return x.mayOf(ctx, self)
}

// Depart implements [rpc.Access].
func (x Access) Depart(ctx context.Context, c *rpc.Call, m api.Method) (end func(), err error) {
	c.By.Visitor = new(rpc.Visitor)
	if m.Agents != api.Peers { // then no turn waits, either
		return func() {}, nil
	}
	from := c.By.Agent.AgentID
	mine, err := x.callerMay(ctx, rpc.Principal{Agent: c.By.Agent})
	if err != nil {
		return nil, err
	}
	rights, err := json.Marshal(mine)
	if err != nil {
		return nil, fmt.Errorf("encode what %s may do: %w", from, err)
	}
	end, err = x.r.o.Supervisor.Wait(supervisor.Wait{From: from, To: c.Agent})
	c.By.Visitor.Rights, c.By.Visitor.Waits = rights, x.r.o.Supervisor.WaitsFor(from)
	return end, err
}

// CheckPeer is NOT_PERMITTED if other may do anything that the calling agent may
// not do itself: it would do that for the caller.
func (x Access) CheckPeer(ctx context.Context, by rpc.Principal, other *supervisor.Agent) error {
	mine, err := x.callerMay(ctx, by)
	if err != nil {
		return err
	}
	theirs, err := x.mayOf(ctx, other)
	if err != nil {
		return err
	}
	over := theirs.beyond(mine)
	if len(over) == 0 {
		return nil
	}
	const most = 8
	if len(over) > most {
		over = append(over[:most:most], fmt.Sprintf("%d more", len(over)-most))
	}
	return api.Denied("an agent cannot send to one that may do more than itself: %s may and %s may not: %s", other.ID(), by.Agent.AgentID, strings.Join(over, ", "))
}

// checkAwake is NOT_PERMITTED if a call for the target would start its process and
// the calling agent did not create it: to wake an agent is for people and for its
// creator.
func (x Access) checkAwake(from, target string) error {
	a, err := x.r.o.Supervisor.Agent(target)
	switch {
	case err == nil && (a.Info().State != supervisor.Stopped || x.r.Descends(target, from)):
		return nil
	case err != nil:
		saved, err := x.r.o.Sessions.Summary(target)
		if errors.Is(err, sessions.ErrNotFound) {
			return rpc.AgentNotFound(target, supervisor.ErrNotFound)
		}
		if err == nil && slices.Contains(x.r.line(saved), from) {
			return nil
		}
	}
	return api.Denied("%s does not run and %s did not create it: to start it is for people", target, from)
}

// checkUnrestricted is NOT_PERMITTED if an agent is not without restrictions.
func (x Access) checkUnrestricted(ctx context.Context, from string) error {
	self, err := x.r.o.Supervisor.Agent(from)
	if err != nil {
		return Destroyed(from, err)
	}
	m, err := x.mayOf(ctx, self)
	if err == nil && m.Permissions.Preset != rights.Yolo {
		err = api.Denied("%s is %s: only an agent without restrictions can end the server", from, m.Permissions.Preset)
	}
	return err
}
