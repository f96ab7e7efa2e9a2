package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Origin says where the agent of a create_agent call came from.
type Origin string

const (
	IsNew      Origin = ""
	WasSaved   Origin = "saved"   // it continues a saved session
	WasRunning Origin = "running" // if_exists "use": the server had it already
)

// useExisting finds the running agent of p for create_agent with if_exists "use".
// An agent gets those alone that it has created itself.
func (r *Registry) useExisting(c *rpc.Call, p api.CreateAgentParams) (*supervisor.Agent, error) {
	a, err := r.o.Supervisor.Agent(*p.AgentID)
	if err != nil {
		return nil, err
	}
	if protocol.Value(p.IfExists) != api.IfExistsUse {
		return nil, rpc.AgentExists(*p.AgentID)
	}
	if c.By.Agent != nil && a.Info().Labels.Parent != c.By.Agent.AgentID {
		return nil, api.Denied("%s did not create %s: choose another name, or send to it", c.By.Agent.AgentID, *p.AgentID)
	}
	return a, nil
}

// CheckSame is AGENT_EXISTS if a running agent is not as given asks for. What
// given leaves out is not compared. Tools and paths may be restricted further than
// given asks for.
func (r *Registry) CheckSame(ctx context.Context, a *supervisor.Agent, given api.CreateAgentParams) error {
	state, err := Ask(ctx, r, a, protocol.GetState{})
	if err != nil {
		return err
	}
	labels := a.Info().Labels
	is := func(want *string, have ...string) bool { return want == nil || slices.Contains(have, *want) }
	var names []string
	for _, one := range []struct {
		name string
		same bool
	}{
		{"preset", is(given.Preset, state.Preset)},
		{"cwd", given.Cwd == nil || realPath(*given.Cwd) == realPath(state.Cwd)},
		{"model", is(given.Model, state.Model, state.Provider+"/"+state.Model)},
		{"provider", is(given.Provider, state.Provider)},
		{"system_prompt", is(given.SystemPrompt, state.SystemPrompt)},
		{"approvals", is(given.Approvals, labels.Approvals) || labels.Approvals == "" && *given.Approvals == api.ApprovalsDeny},
		{"parent_agent_id", is(given.ParentAgentID, labels.Parent)},
		{"disable_tools", lacks(protocol.Value(given.DisableTools), state.Permissions.DisabledTools)},
		{"allowed_write_paths", given.AllowedWritePaths == nil || writesWithin(*given.AllowedWritePaths, state.Permissions.Policy.WritePaths)},
		{"limits", given.Limits == nil || digest(given.Limits) == labels.LimitsDigest},
		{"env", given.Env == nil || digest(given.Env) == labels.EnvDigest},
	} {
		if !one.same {
			names = append(names, one.name)
		}
	}
	if names != nil {
		return &api.Error{
			Kind: api.KindAgentExists, About: a.ID(), Details: fmt.Sprintf("agent %s is there and differs in %s", a.ID(), strings.Join(names, ", ")),
			Suggestions: []string{
				"Leave out what differs, change it by the agent's own methods (set_permissions for preset), or use another name.",
				"If the agent is destroyed and created again, it continues its saved session: preset, paths and tools only narrow what was saved.",
			},
		}
	}
	return nil
}

// realPath is a path without links; the path itself where there is none.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// lacks reports whether all tools of want are among those that are disabled.
func lacks(want, disabled []string) bool {
	return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(disabled, name) })
}

// writesWithin reports whether an agent that may write below the paths of have, nil
// for wherever it works, can write nothing outside want.
func writesWithin(want []string, have *[]string) bool {
	if have == nil {
		return false
	}
	for _, path := range *have {
		inside := slices.ContainsFunc(want, func(dir string) bool {
			way, err := filepath.Rel(realPath(dir), realPath(path))
			return err == nil && filepath.IsLocal(way)
		})
		if !inside {
			return false
		}
	}
	return true
}

// digest stands for a parameter that is compared and not kept: env may hold secrets.
func digest(value any) string {
	text, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		panic("bridge: parameters of our own: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
