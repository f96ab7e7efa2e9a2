package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/supervisor"
)

// workdirParam is where a task says the directory of its work.
const workdirParam = "context.current_directory"

// CheckDir refuses that an agent that p creates works in dir, nil for where p says. A directory that p has
// holds: dir must be in it.
func CheckDir(p api.CreateAgentParams, dir *string) error {
	if dir != nil && p.Cwd != nil && !inside(realPath(*dir), realPath(*p.Cwd)) {
		return outside(workdirParam, *dir, *p.Cwd)
	}
	return nil
}

func outside(param, dir, bound string) error {
	return api.Invalid(param, "%s is not in %s, the directory that is configured or given for the agent", dir, bound)
}

// CreateIn creates an agent as p says, that works in dir; nil for where p says. One that came to work outside of the directory that p has is destroyed before anybody
// asks it: a program that may write there can exchange dir with a link after it was looked at.
func CreateIn(ctx context.Context, r *Registry, c *rpc.Call, p api.CreateAgentParams, dir *string) (*supervisor.Agent, error) {
	if dir == nil {
		return r.CreateFor(ctx, c, p)
	}
	bound := p.Cwd
	p.Cwd = dir
	a, err := r.CreateFor(ctx, c, p)
	if err != nil || bound == nil {
		return a, err
	}
	state, err := Ask(ctx, r, a, protocol.GetState{})
	if err == nil && !inside(state.Cwd, realPath(*bound)) {
		err = outside("cwd", *dir, *bound)
	}
	if err != nil {
		return nil, cmp.Or(r.DestroyFor(context.WithoutCancel(ctx), c, a.ID()), err)
	}
	return a, nil
}

// DirError is an error of CreateIn, also for a pool: one about its directory names the
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

// LoadIn is Load of a copy that works in dir, nil for where the session did; within what it may reach. One that
// came to work elsewhere is destroyed before anybody asks it, as in CreateIn.
func LoadIn(ctx context.Context, r *Registry, c *rpc.Call, session, name string, dir *string) (*supervisor.Agent, error) {
	a, _, err := r.Load(ctx, session, name, api.LoadSessionParams{})
	if err != nil || dir == nil {
		return a, err
	}
	state, err := Ask(ctx, r, a, protocol.GetState{})
	if err == nil {
		var now protocol.SetCwdAnswer
		now, err = Ask(ctx, r, a, protocol.SetCwd{Cwd: *dir})
		if err == nil && !rights.Contains(rights.AccessiblePaths(state.Permissions.Ceiling), now.Cwd) {
			err = fmt.Errorf("%s is outside of what it may reach", *dir)
		}
	}
	if err != nil {
		err = api.Invalid(workdirParam, "the session %s may not work there: %v", session, err)
		if gone := r.DestroyFor(context.WithoutCancel(ctx), c, name); gone != nil {
			return nil, gone
		}
		return nil, err
	}
	return a, nil
}
