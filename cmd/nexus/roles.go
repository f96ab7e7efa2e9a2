package main

import (
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/config"
)

// rolesOf are the agents that the configuration gives roles to.
func rolesOf(cfg *config.Config) (map[agents.Role]api.CreateAgentParams, error) {
	roles := map[agents.Role]api.CreateAgentParams{}
	for name, r := range cfg.Roles {
		p := api.CreateAgentParams{AgentID: &r.AgentID}
		for _, one := range []struct {
			value  string
			target **string
		}{
			{r.Preset, &p.Preset}, {r.Cwd, &p.Cwd}, {r.Model, &p.Model}, {r.Provider, &p.Provider}, {r.SystemPrompt, &p.SystemPrompt},
		} {
			if one.value != "" {
				*one.target = &one.value
			}
		}
		if err := api.Check(p); err != nil {
			return nil, misconfigured(cfg, "roles."+name, err)
		}
		roles[agents.Role(name)] = p
	}
	return roles, nil
}

// presetsOf are the presets of the configuration, by what each is made of.
func presetsOf(cfg *config.Config) map[string]string {
	presets := map[string]string{}
	for name, p := range cfg.Presets {
		presets[name] = p.Preset
	}
	return presets
}
