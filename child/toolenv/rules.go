package toolenv

import (
	"context"

	"nexus.internal/child/sandbox"
	"nexus.internal/protocol/rights"
)

// Rules are those for a program that a tool starts: of the call that ctx belongs
// to, or of the moment. The kernel holds it to what the policy says of files;
// under yolo it is held to nothing unless paths are blocked or bounded.
func (env *Env) Rules(ctx context.Context, tool string) sandbox.Rules {
	g := env.grant(ctx)
	policy := g.policy
	inherit := env.options.PassEnv
	if g.readOnly || g.covered { // a link in the project, or one made since, would lead to what is asked about
		inherit = nil
		policy.Permissions.Preset = rights.Sandboxed
	}
	if g.readOnly {
		policy.Permissions.WritePaths = []string{}
	}
	s := policy.Sandbox(tool)
	r := sandbox.Rules{
		ReadWrite: s.ReadWrite, ReadOnly: s.ReadOnly, Blocked: s.Blocked, Except: s.Except,
		Network: s.Network, Inherit: inherit, Temp: env.options.Temp, Spill: env.spill.dir,
	}
	switch {
	case policy.Level() == rights.Sandboxed || s.Bounded:
		r.Confinement = sandbox.Always
	case policy.Level() == rights.Trusted:
		r.Confinement = sandbox.WherePossible
	default:
		r.Confinement = sandbox.Unconfined
	}
	return r
}
