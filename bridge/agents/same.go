package agents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
)

// CheckSame is AGENT_EXISTS if a running agent is not as given asks for. What
// given leaves out is not compared. Tools and paths may be restricted further than
// given asks for.
func (r *Registry) CheckSame(ctx context.Context, a *supervisor.Agent, given api.CreateAgentParams) error {
	state, err := Ask(ctx, r, a, protocol.GetState{})
	if err != nil {
		return err
	}
	labels := a.Info().Labels
	limitsSame, err := sameLimits(r.o.Admission, a.ID(), given.Limits)
	if err != nil {
		return err
	}
	is := func(want *string, have ...string) bool { return want == nil || slices.Contains(have, *want) }
	var names []string
	for _, one := range []struct {
		name string
		same bool
	}{
		{"preset", is(given.Preset, state.Preset)},
		{"cwd", given.Cwd == nil || realPath(*given.Cwd) == realPath(state.Cwd)},
		{"kind", is(given.Kind, a.Info().Kind)},
		{"model", is(given.Model, state.Model, state.Provider+"/"+state.Model)},
		{"provider", is(given.Provider, state.Provider)},
		{"system_prompt", is(given.SystemPrompt, state.SystemPrompt)},
		{"approvals", is(given.Approvals, labels.Approvals) || labels.Approvals == "" && *given.Approvals == api.ApprovalsDeny},
		{"cwd_lost", is(given.CwdLost, cmp.Or(labels.CwdLost, protocol.CwdLostWait))},
		{"parent_agent_id", is(given.ParentAgentID, labels.Parent)},
		{"disable_tools", lacks(protocol.Value(given.DisableTools), state.Permissions.DisabledTools)},
		{"allowed_write_paths", given.AllowedWritePaths == nil || writesWithin(*given.AllowedWritePaths, state.Permissions.Policy.WritePaths)},
		{"network", given.Network == nil || reachesWithin(*given.Network, state.Permissions.Policy.Network)},
		{"limits", limitsSame},
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
				changeOf(names),
				"If the agent is destroyed and created again, it continues its saved session: preset, paths and tools only narrow what was saved.",
			},
		}
	}
	return nil
}

// changes are the methods that change what create_agent can say of a new agent. What is not
// among them stays.
var changes = map[string]string{
	"preset": "set_permissions", "disable_tools": "set_permissions", "allowed_write_paths": "set_permissions", "network": "set_permissions", "cwd": "set_cwd",
	"model": "set_model", "provider": "set_model", "system_prompt": "set_system_prompt", "limits": "set_limits",
}

// changeOf says what to do about parameters that differ.
func changeOf(names []string) string {
	var by []string
	for _, name := range names {
		if method := changes[name]; method != "" {
			by = append(by, method+" for "+name)
		}
	}
	if by == nil {
		return "Leave out what differs, or use another name."
	}
	return "Leave out what differs, change it by the agent's own methods (" + strings.Join(by, ", ") + "), or use another name."
}

// realPath is a path without links; the path itself where there is none.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

func lacks(want, disabled []string) bool {
	return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(disabled, name) })
}

// reachesWithin reports whether programs that reach the hosts of have, nil for whatever the
// preset says, reach none outside want.
func reachesWithin(want []string, have *[]string) bool {
	bound, err := rights.Clean(protocol.Permissions{Preset: rights.Sandboxed, Network: want})
	return err == nil && have != nil && rights.Beyond(protocol.Permissions{Preset: rights.Sandboxed, Network: *have}, bound) == nil
}

// writesWithin reports whether an agent that may write below the paths of have, nil
// for wherever it works, can write nothing outside want.
func writesWithin(want []string, have *[]string) bool {
	if have == nil {
		return false
	}
	for _, path := range *have {
		inside := slices.ContainsFunc(want, func(dir string) bool {
			_, ok := safefile.Below(realPath(dir), realPath(path))
			return ok
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
