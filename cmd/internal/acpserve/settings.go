package acpserve

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// modelsPatience bounds the wait for the list of models, for which services may be asked.
const modelsPatience = 5 * time.Second

// The settings of a session that an editor can change.
const (
	optionMode   = "mode"
	optionModel  = "model"
	optionEffort = "thought_level"
)

// settings are how an agent is set, as far as an editor shows it.
type settings struct {
	basis   string // the built-in preset
	preset  string // the mode: basis, or a preset of the configuration that is made of it
	presets []choice
	model   string // PROVIDER/ID
	models  []choice
	effort  string // "" is as the model does
	reasons bool   // the model reasons before it answers
}

// settings asks the agent.
func (s *server) settings(ctx context.Context, c *client.Client, x *session) (now settings, err error) {
	id := x.id
	may, err := client.Do(ctx, c, id, api.GetPermissions, api.None{})
	if err != nil {
		return now, err
	}
	model, err := client.Do(ctx, c, id, api.GetModel, api.None{})
	if err != nil {
		return now, err
	}
	set, err := client.Do(ctx, c, id, api.GetSettings, api.None{})
	if err != nil && client.KindOf(err) != api.KindUnsupported { // as of an agent of another make
		return now, err
	}
	now = settings{
		basis: may.Preset, model: model.Provider + "/" + model.Model, reasons: model.Reasoning, effort: protocol.Value(set.Settings.ReasoningEffort),
	}
	x.mu.Lock()
	now.preset = x.mode
	x.mu.Unlock()
	s.presets(&now)
	patience, stop := context.WithTimeout(ctx, modelsPatience)
	defer stop()
	models, err := client.Do(patience, c, id, api.ListModels, api.None{})
	if err != nil { // the present one can be shown all the same
		models.Models = nil
	}
	for _, m := range models.Models {
		now.models = append(now.models, choice{Value: m.Provider + "/" + m.ModelID, Name: m.ModelName})
	}
	if !has(now.models, now.model) {
		now.models = append(now.models, choice{Value: now.model, Name: model.Model})
	}
	return now, nil
}

func has(all []choice, value string) bool {
	return slices.ContainsFunc(all, func(one choice) bool { return one.Value == value })
}

// presets fills in the modes, and which of them holds: an agent says only what its preset is made of. yolo is among
// them only where the agent is that, as no request grants it.
func (s *server) presets(now *settings) {
	now.presets = []choice{
		{rights.Trusted, "Trusted", "asks before it leaves its directory or runs a program"},
		{rights.Sandboxed, "Sandboxed", "its directory alone, without network; asks for nothing"},
	}
	made := map[string]string{}
	if cfg, err := s.app.LoadConfig(""); err == nil { // else its server says what is wrong with it
		for _, name := range slices.Sorted(maps.Keys(cfg.Presets)) {
			if made[name] = cfg.Presets[name].Preset; made[name] != rights.Yolo {
				now.presets = append(now.presets, choice{name, name, "a preset of the configuration, made of " + made[name]})
			}
		}
	}
	if now.preset == "" || made[now.preset] != now.basis {
		now.preset = now.basis
	}
	if !has(now.presets, now.preset) {
		now.presets = append(now.presets, choice{now.preset, now.preset, "does everything without asking; what is left cannot be had again here"})
	}
}

// modes are the presets as modes.
func (n settings) modes() *modeState {
	state := &modeState{CurrentModeID: n.preset}
	for _, one := range n.presets {
		state.AvailableModes = append(state.AvailableModes, mode{one.Value, one.Name, one.Description})
	}
	return state
}

// options are all of them as the protocol's later kind of settings, which takes the place of modes.
func (n settings) options() (all []configOption) {
	all = append(all, configOption{
		ID: optionMode, Name: "Permissions", Description: "what the agent may do", Category: "mode", Type: "select", CurrentValue: n.preset, Options: n.presets,
	}, configOption{
		ID: optionModel, Name: "Model", Description: "from the next prompt on", Category: "model", Type: "select", CurrentValue: n.model, Options: n.models,
	})
	if n.reasons {
		all = append(all, configOption{
			ID: optionEffort, Name: "Reasoning", Description: "how long the model reasons", Category: "thought_level", Type: "select",
			CurrentValue: effortName(n.effort), Options: []choice{{"default", "As the model does", ""}, {"low", "Low", ""}, {"medium", "Medium", ""}, {"high", "High", ""}},
		})
	}
	return all
}

func effortName(effort string) string {
	if effort == "" {
		return "default"
	}
	return effort
}

// setMode is session/set_mode.
func (s *server) setMode(ctx context.Context, c *client.Client, p setModeParams) (none, error) {
	_, err := s.set(ctx, c, p.SessionID, optionMode, p.ModeID)
	return none{}, err
}

// setOption is session/set_config_option.
func (s *server) setOption(ctx context.Context, c *client.Client, p setOptionParams) (setOptionResult, error) {
	var value string
	if json.Unmarshal(p.Value, &value) != nil {
		return setOptionResult{}, invalid("value of %.64q must be a string", p.ConfigID)
	}
	now, err := s.set(ctx, c, p.SessionID, p.ConfigID, value)
	return setOptionResult{now.options()}, err
}

// set changes a setting, and tells the editor what has changed.
func (s *server) set(ctx context.Context, c *client.Client, id, option, value string) (now settings, err error) {
	x := s.session(id)
	if x == nil {
		return now, notFound(id)
	}
	switch option {
	case optionMode:
		_, err = client.Do(ctx, c, id, api.SetPermissions, api.SetPermissionsParams{Preset: &value})
		if err == nil {
			x.mu.Lock()
			x.mode = value
			x.mu.Unlock()
		}
	case optionModel:
		_, err = client.Do(ctx, c, id, api.SetModel, api.SetModelParams{Model: value})
	case optionEffort:
		if value == "default" {
			value = ""
		}
		_, err = client.Do(ctx, c, id, api.SetSettings, api.SetSettingsParams{Settings: &api.TurnSettings{ReasoningEffort: &value}})
	default:
		err = invalid("there is no setting %.64q", option)
	}
	if err != nil {
		return now, err
	}
	if now, err = s.settings(ctx, c, x); err == nil {
		s.tell(x, now)
	}
	return now, err
}

// tell tells the editor what is set otherwise than it was told last.
func (s *server) tell(x *session, now settings) {
	x.mu.Lock()
	before := x.told
	x.told = now
	x.mu.Unlock()
	if now.preset != before.preset {
		s.peer.update(x.id, modeUpdate{"current_mode_update", now.preset})
	}
	if now.preset != before.preset || now.model != before.model || now.effort != before.effort || now.reasons != before.reasons {
		s.peer.update(x.id, optionsUpdate{"config_option_update", now.options()})
	}
}
