package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/supervisor"
)

// may is what an agent may do, as far as two agents are compared by it.
type may struct {
	// permissions has the working directory among its paths.
	permissions protocol.Permissions
	allowances  []protocol.Allowance
	env         string // the digest of the variables that its programs get
	// unconfined says that it runs as a program of another make that nothing confines: what it asks is decided
	// by the permissions, what it does without asking is not.
	unconfined bool
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
	program := state.Program
	return may{
		permissions: held.Ceiling, allowances: held.Allowed, env: a.Info().Labels.EnvDigest,
		unconfined: program != nil && !program.Sandbox && held.Ceiling.Preset != rights.Sandboxed,
	}, nil
}

// beyond names what an agent may do that another one may not.
func (m may) beyond(other may) []string {
	over := append(rights.Beyond(m.permissions, other.permissions), rights.BeyondAllowances(m.allowances, other.allowances)...)
	if m.env != other.env && m.env != digest((*map[string]string)(nil)) {
		over = append(over, "its environment variables")
	}
	if m.unconfined && !other.unconfined && other.permissions.Preset != rights.Yolo {
		over = append(over, "run a program that nothing confines")
	}
	return over
}

// CheckPeer is NOT_PERMITTED if other may do anything that the calling agent may
// not do itself: it would do that for the caller.
func (x Access) CheckPeer(ctx context.Context, from string, other *supervisor.Agent) error {
	self, err := x.r.o.Supervisor.Agent(from)
	if err != nil {
		return Destroyed(from, err)
	}
	mine, err := x.mayOf(ctx, self)
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
	return api.Denied("an agent cannot send to one that may do more than itself: %s may and %s may not: %s", other.ID(), from, strings.Join(over, ", "))
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
	if err == nil && m.permissions.Preset != rights.Yolo {
		err = api.Denied("%s is %s: only an agent without restrictions can end the server", from, m.permissions.Preset)
	}
	return err
}
