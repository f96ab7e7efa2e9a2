package toolenv

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// underSame is the policy for a tool: those of jobs run programs as shell does, and those that move
// files write as write_file does, so that what holds for these holds for them. What was allowed of
// write_file covers a copy alone: it was allowed without deletions, of which a move is one (D511).
func underSame(p permission.Policy, tool string) permission.Policy {
	if other := allowedAs(tool); other != "" {
		return p.Under(tool, other)
	}
	switch tool {
	case "move_file", "delete_file", patchName:
		return p.HeldTo(tool, writeName)
	}
	return p
}

// allowedAs is the tool whose allowances a tool has besides its own; "" for none.
func allowedAs(tool string) string {
	switch tool {
	case "job_start", "job_input":
		return shellName
	case "copy_file":
		return writeName
	}
	return ""
}

const writeName, patchName = "write_file", "apply_patch"

// jobStart is the tool job_start in the directory and under the rules of each call.
type jobStart struct {
	tool.Scoped // that never runs
	env         *Env
}

// jobTools are the tools for background jobs.
func jobTools(env *Env) []tool.Tool {
	start, others := env.jobs.Tools()
	return append([]tool.Tool{jobStart{start, env}}, others...)
}

// Scope implements [tool.Scoped].
func (s jobStart) Scope(in jsontext.Value) (tool.Scope, error) {
	scope, err := s.Scoped.Scope(in)
	return scope, errors.Join(err, beginsWithin(s.env, scope))
}

func (s jobStart) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	if c.Permit.ReadOnly {
		c = withSafeGit(c)
	}
	result, err := s.env.jobs.Start(ctx, s.env.shellOptions(c), c)
	s.env.mu.Lock()
	defer s.env.mu.Unlock()
	s.env.reviewJobs() // the permissions may have changed before it was among the jobs
	return result, err
}

// reviewJobs stops the jobs that could do more than a job could now. env.mu is held.
func (env *Env) reviewJobs() {
	env.jobs.Review("stopped, because the permissions or the working directory have changed", reachOf(jobTool, env.policy(env.cwd)))
}

// reviewNetwork has the programs that start from now on share no network with those that reach
// other hosts. env.mu is held.
func (env *Env) reviewNetwork() {
	if hosts := env.policy(env.cwd).Sandbox(shellName).Hosts; !slices.Equal(hosts, env.hosts) {
		env.loopback.Renew()
		env.hosts = hosts
	}
}

// jobTool is the tool whose rules hold for jobs.
const jobTool = "job_start"

// reach is what the programs of a tool can reach under a policy.
type reach protocol.Permissions

func reachOf(tool string, p permission.Policy) reach {
	most := p.Under(tool, shellName).Ceiling()
	rule := most.Tools[tool]
	denied := slices.Contains(most.DisabledTools, tool) || rule.Mode == rights.ModeDeny
	// Whether it is asked for is no matter of what it can reach, nor of the hosts that it reaches.
	unasked := protocol.ToolRule{Mode: rights.ModeAllow}
	rule.Mode = unasked.Mode
	most.Tools, most.DisabledTools = map[string]protocol.ToolRule{shellName: unasked, "web_fetch": unasked}, nil
	most.Tools[tool] = rule
	if denied {
		most.DisabledTools = []string{tool}
	}
	return reach(most)
}

// Allows reports whether a job that got the permit can reach no more than that.
func (r reach) Allows(p permission.Permit) bool {
	return rights.Beyond(protocol.Permissions(reachOf(jobTool, p.Policy)), protocol.Permissions(r)) == nil
}
