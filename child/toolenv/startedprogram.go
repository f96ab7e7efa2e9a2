package toolenv

import (
	"context"

	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// programName is the name of a program of another make in the rules, in the place of a tool's.
const programName = "program"

// Outgrower is told that its program is killed, because it can do more than it may do now. It does not wait.
type Outgrower interface{ Outgrow() }

// startedProgram is the program of another make that was started last, and may have ended.
type startedProgram struct {
	Program
	policy  permission.Policy // of its start
	process *sandbox.Process
	owner   Outgrower
}

// Start starts the program under the permissions of the moment, with the Service of spec's rules. When
// they are changed and the program could do more than it could be started to do then, its owner is told, and
// it is killed.
func (p Program) Start(ctx context.Context, spec sandbox.Spec, owner Outgrower) (*sandbox.Process, error) {
	policy, service := p.env.currentPolicy(), spec.Rules.Service
	spec.Rules = p.rules(policy)
	spec.Rules.Service = service
	process, err := sandbox.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.env.mu.Lock()
	defer p.env.mu.Unlock()
	p.env.started = &startedProgram{p, policy, process, owner}
	p.env.started.review(p.env) // the permissions may have changed since
	return process, nil
}

// review ends the program if it can do more than it could be started to do now. env.mu is held.
func (s *startedProgram) review(env *Env) {
	if s == nil {
		return
	}
	now := env.policy(env.cwd)
	if !s.confined(now) {
		return
	}
	if s.confined(s.policy) && rights.Beyond(protocol.Permissions(reachOf(programName, s.policy)), protocol.Permissions(reachOf(programName, now))) == nil {
		return
	}
	env.started = nil
	s.owner.Outgrow()
	s.process.Kill()
}
