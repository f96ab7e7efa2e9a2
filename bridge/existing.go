package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// origin says where the agent of a create_agent call came from.
type origin string

const (
	isNew     origin = ""
	wasSaved  origin = "saved"   // it continues a saved session
	wasActive origin = "running" // if_exists "use": the server had it already
)

// differsError says that create_agent asked for an agent that is there with other
// settings.
type differsError struct {
	id    string
	names []string // parameters
}

func (e *differsError) Error() string {
	return fmt.Sprintf("agent %s is there and differs in %s", e.id, strings.Join(e.names, ", "))
}

// useExisting finds the running agent of p for create_agent with if_exists "use".
// An agent gets those alone that it has created itself.
func (s *Server) useExisting(c *call, p api.CreateAgentParams) (*supervisor.Agent, error) {
	a, err := s.o.Supervisor.Agent(*p.AgentID)
	if err != nil {
		return nil, err
	}
	if protocol.Value(p.IfExists) != api.IfExistsUse {
		return nil, &agentError{id: *p.AgentID, err: supervisor.ErrExists}
	}
	if c.from != nil && a.Info().Labels[labelParent] != c.from.AgentID {
		return nil, &deniedError{fmt.Sprintf("%s did not create %s: choose another name, or send to it", c.from.AgentID, *p.AgentID)}
	}
	return a, nil
}

// checkSame is a *differsError if a running agent is not as given asks for. What
// given leaves out is not compared. Tools and paths may be restricted further than
// given asks for.
func (s *Server) checkSame(ctx context.Context, a *supervisor.Agent, given api.CreateAgentParams) error {
	body, err := s.ask(ctx, a, protocol.GetState{})
	if err != nil {
		return err
	}
	state, labels := gjson.ParseBytes(body), a.Info().Labels
	is := func(want *string, have ...string) bool { return want == nil || slices.Contains(have, *want) }
	model, provider := state.Get("model").Str, state.Get("provider").Str
	var names []string
	for _, one := range []struct {
		name string
		same bool
	}{
		{"preset", is(given.Preset, state.Get("preset").Str)},
		{"cwd", given.Cwd == nil || realPath(*given.Cwd) == realPath(state.Get("cwd").Str)},
		{"model", is(given.Model, model, provider+"/"+model)},
		{"provider", is(given.Provider, provider)},
		{"system_prompt", is(given.SystemPrompt, state.Get("system_prompt").Str)},
		{"approvals", is(given.Approvals, labels[labelApprovals]) || labels[labelApprovals] == "" && *given.Approvals == api.ApprovalsDeny},
		{"parent_agent_id", is(given.ParentAgentID, labels[labelParent])},
		{"disable_tools", lacks(protocol.Value(given.DisableTools), state.Get("permissions.disabled_tools"))},
		{"allowed_write_paths", given.AllowedWritePaths == nil || writesWithin(*given.AllowedWritePaths, state.Get("permissions.policy.write_paths"))},
		{"limits", given.Limits == nil || digest(given.Limits) == labels[labelLimits]},
		{"env", given.Env == nil || digest(given.Env) == labels[labelEnv]},
	} {
		if !one.same {
			names = append(names, one.name)
		}
	}
	if names != nil {
		return &differsError{id: a.ID(), names: names}
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
func lacks(want []string, disabled gjson.Result) bool {
	var have []string
	for _, name := range disabled.Array() {
		have = append(have, name.Str)
	}
	return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(have, name) })
}

// writesWithin reports whether an agent that may write below the paths of have, null
// for wherever it works, can write nothing outside want.
func writesWithin(want []string, have gjson.Result) bool {
	if !have.IsArray() {
		return false
	}
	for _, path := range have.Array() {
		inside := slices.ContainsFunc(want, func(dir string) bool {
			way, err := filepath.Rel(realPath(dir), realPath(path.Str))
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
