package toolenv

import (
	"nexus.internal/child/egress"
	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/protocol/rights"
)

// Rules are those for a program that the tool starts outside of a call, by the
// permissions of the moment.
func (env *Env) Rules(tool string) sandbox.Rules {
	r := env.rules(permission.Permit{Policy: env.currentPolicy()}, tool)
	r.Home = "" // a server of somebody's has that person's home
	return r
}

// rules are those for a program that a call of the tool starts. The kernel holds it to
// what the policy says of files; under yolo it is held to nothing unless paths are
// blocked or bounded.
func (env *Env) rules(permit permission.Permit, tool string) sandbox.Rules {
	policy := permit.Policy
	inherit := env.options.PassEnv
	if permit.ReadOnly || permit.Covered { // a link in the project, or one made since, would lead to what is asked about
		inherit = nil
		policy.Permissions.Preset, policy.Permissions.Network = rights.Sandboxed, nil
	}
	if permit.ReadOnly {
		policy.Permissions.WritePaths = []string{}
	}
	s := policy.Sandbox(tool)
	r := sandbox.Rules{
		ReadWrite: s.ReadWrite, ReadOnly: s.ReadOnly, Blocked: s.Blocked, Except: s.Except,
		Network: s.Network, Inherit: inherit, Temp: env.options.Temp, Leftovers: env.leftovers, Spill: env.spill.dir,
	}
	if s.Hosts != nil {
		r.Gate = egress.NewGate(egress.GateOptions{Hosts: s.Hosts, Resolver: env.options.Resolver, Log: env.options.Log})
	}
	if !permit.ReadOnly && !permit.Covered && policy.Level() != rights.Yolo {
		r.Home = env.home.dir
	}
	switch {
	case policy.Level() == rights.Sandboxed || s.Bounded || s.Hosts != nil:
		r.Confinement = sandbox.Always
		if !s.Network && !permit.ReadOnly && !permit.Covered {
			r.Loopback = &env.loopback
		}
	case policy.Level() == rights.Trusted:
		r.Confinement = sandbox.WherePossible
	default:
		r.Confinement = sandbox.Unconfined
	}
	return r
}
