package agents

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// workdirParam is where a task says the directory of its work.
const workdirParam = "context.current_directory"

// In returns what creates an agent that works in dir, nil for where p says. A directory that p has
// holds: dir must be in it.
func In(p api.CreateAgentParams, dir *string) (api.CreateAgentParams, error) {
	if dir == nil {
		return p, nil
	}
	if p.Cwd != nil && !inside(realPath(*dir), realPath(*p.Cwd)) {
		return p, api.Invalid(workdirParam, "%s is not in %s, the directory that is configured or given for the agent", *dir, *p.Cwd)
	}
	p.Cwd = dir
	return p, nil
}

// DirError is an error of the creation of an agent of In, also for a pool: one about its directory names the
// parameter of the task.
func DirError(err error, dir *string) error {
	e, ok := errors.AsType[*api.ParamError](err)
	if !ok || e.Param != "cwd" && e.Param != "pool.cwd" || dir == nil {
		return err
	}
	return &api.ParamError{Param: workdirParam, Problem: strings.Replace(e.Problem, e.Param, workdirParam, 1)}
}

func inside(path, dir string) bool {
	up, err := filepath.Rel(dir, path)
	return err == nil && up != ".." && !strings.HasPrefix(up, "../")
}

// CheckIn refuses a task that is to be done in dir by an agent that works elsewhere; nil is anywhere.
func CheckIn(ctx context.Context, r *Registry, a *supervisor.Agent, dir *string) error {
	if dir == nil {
		return nil
	}
	state, err := Ask(ctx, r, a, protocol.GetState{})
	if err != nil {
		return err
	}
	if realPath(*dir) != realPath(state.Cwd) {
		return api.Invalid(workdirParam, "the agent %s works in %s: call set_cwd before, or leave the agent to the role", a.ID(), state.Cwd)
	}
	return nil
}

// LoadIn is Load of a copy that works in dir, nil for where the session did; within what its owner
// granted.
func LoadIn(ctx context.Context, r *Registry, c *rpc.Call, session, name string, dir *string) (*supervisor.Agent, error) {
	a, _, err := r.Load(ctx, session, name, api.LoadSessionParams{})
	if err != nil || dir == nil {
		return a, err
	}
	if _, err := Ask(ctx, r, a, protocol.SetCwd{Cwd: *dir, Within: protocol.WithinGranted}); err != nil {
		err = api.Invalid(workdirParam, "the session %s may not work there: %v", session, err)
		if gone := r.DestroyFor(context.WithoutCancel(ctx), c, name); gone != nil {
			return nil, gone
		}
		return nil, err
	}
	return a, nil
}
