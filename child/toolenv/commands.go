package toolenv

import (
	"context"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool/shell"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// command is a call of shell that runs.
type command struct {
	permit permission.Permit
	end    context.CancelCauseFunc
}

// commands are the calls of shell that run. [Env.mu] guards them.
type commands map[*command]struct{}

// whilePermitted ends the context of a command when the permissions are changed and it could
// do more than it could be started to do then. done is called after it.
func (s shellTool) whilePermitted(ctx context.Context, permit permission.Permit) (_ context.Context, done func()) {
	env := s.env
	ctx, cancel := context.WithCancelCause(ctx)
	c := &command{permit, cancel}
	env.mu.Lock()
	defer env.mu.Unlock()
	env.commands[c] = struct{}{}
	env.commands.review(env) // the permissions may have changed since it was permitted
	return ctx, func() {
		env.mu.Lock()
		defer env.mu.Unlock()
		delete(env.commands, c)
		cancel(nil)
	}
}

// review ends the commands that could do more than a command could now, in the
// directory where they began. env.mu is held.
func (running commands) review(env *Env) {
	for c := range running {
		policy := c.permit.Policy
		now := reachOf(shellName, env.policy(policy.Cwd))
		if c.permit.ReadOnly || c.permit.Covered { // as in rules
			policy.Permissions.Preset, policy.Permissions.Network = rights.Sandboxed, nil
		}
		if rights.Beyond(protocol.Permissions(reachOf(shellName, policy)), protocol.Permissions(now)) != nil {
			c.end(shell.ErrPermissions)
		}
	}
}
