package child

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/prompt"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// setModel holds for the turns to come; one that runs goes on with its own.
func (s *server) setModel(ctx context.Context, c protocol.SetModel) (answer protocol.SetModelAnswer, err error) {
	selected, err := s.selectModel(c.Model)
	if err == nil && s.Foreign != nil {
		err = s.Foreign.SetModel(ctx, c.Model)
	}
	if err != nil {
		return answer, err
	}
	record := transcript.Settings{Model: &selected.Model, Provider: &selected.ProviderName, At: time.Now().UTC()}
	if err := s.session.save(record); err != nil {
		return answer, err
	}
	s.session.setModel(selected)
	if active, _ := s.queue.status(); active == nil { // a turn that runs goes on with the window of its own model
		s.session.conversation.SetModel(selected.name(), selected.ContextWindow)
	}
	s.session.sendUpdate(s.out.post)
	return protocol.SetModelAnswer{Model: selected.Model, Provider: selected.ProviderName}, nil
}

// selectModel finds a model by the name that a command gives it.
func (s *server) selectModel(name string) (Selected, error) {
	if name == "" {
		return Selected{}, errors.New("set_model: the name is empty")
	}
	selected, err := s.Models.Select(name, s.session.current().model.ProviderName)
	if err != nil {
		return Selected{}, err
	}
	if err := protocol.CheckModelName(selected.Model); err != nil { // frames have to hold it
		return Selected{}, fmt.Errorf("set_model: %w", err)
	}
	if selected.ContextWindow == 0 {
		selected.ContextWindow = DefaultContextWindow
	}
	return selected, nil
}

// setSettings holds for the turns to come, but for the time of tool calls, which holds at
// once. A turn that runs goes on with its own.
func (s *server) setSettings(c protocol.SetSettings) (answer protocol.SetSettingsAnswer, err error) {
	now := s.session.current()
	if c.Settings == (protocol.TurnSettings{}) {
		return protocol.SetSettingsAnswer{Settings: now.turns}, nil
	}
	if err := c.Settings.Check(); err != nil {
		return answer, fmt.Errorf("set_settings: %w", err)
	}
	if model := protocol.Value(c.Settings.FallbackModel); model != "" {
		if _, err := s.Models.Select(model, now.model.ProviderName); err != nil {
			return answer, fmt.Errorf("set_settings: member \"fallback_model\": %w", err)
		}
	}
	turns, said := c.Settings.Over(now.turns), c.Settings.Over(now.said)
	if err := s.session.save(transcript.Settings{Turns: &said, At: time.Now().UTC()}); err != nil {
		return answer, err
	}
	if c.Settings.ToolTimeoutS != nil {
		turns.ToolTimeoutS = new(protocol.Tighter(*turns.ToolTimeoutS, s.ToolBound))
	}
	s.session.setTurns(turns, said)
	if s.ToolEnv != nil && turns.ToolTimeoutS != nil {
		s.ToolEnv.Tools().SetTimeout(seconds(*turns.ToolTimeoutS))
	}
	return protocol.SetSettingsAnswer{Settings: turns}, nil
}

// setToolOutput holds at once, also for calls that run.
func (s *server) setToolOutput(c protocol.SetToolOutput) protocol.Acknowledged {
	if s.ToolEnv != nil {
		s.ToolEnv.Tools().SetOutput(c.On)
	}
	return protocol.Acknowledged{}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// setCwd holds for the turns to come; one that runs goes on where it is. The
// prompt of the files is then that of the new directory.
func (s *server) setCwd(c protocol.SetCwd) (answer protocol.SetCwdAnswer, err error) {
	if s.ToolEnv == nil {
		return answer, errors.New("set_cwd: there is no working directory")
	}
	before := s.ToolEnv.Rights()
	if err := s.ToolEnv.SetCwd(c.Cwd, c.Within); err != nil {
		return answer, fmt.Errorf("set_cwd: %w", err)
	}
	held, now := s.ToolEnv.Rights(), s.session.current().prompt
	if !now.Explicit {
		now, err = prompt.Load(prompt.Options{Home: s.Home, Cwd: held.Cwd, Bounds: s.ToolEnv})
	}
	if err == nil {
		err = s.session.save(transcript.Settings{Cwd: &held.Cwd, Granted: &held.Granted, GrantedCwd: &held.GrantedCwd, At: time.Now().UTC()})
	}
	if err != nil {
		s.ToolEnv.Return(before)
		return answer, fmt.Errorf("set_cwd: %w", err)
	}
	s.session.setPrompt(now)
	s.toolsChanged()
	return protocol.SetCwdAnswer{Cwd: held.Cwd}, nil
}

// setPermissions holds at once, also for the calls of a turn that runs. Where it
// cannot be saved, what it takes from the agent holds all the same.
func (s *server) setPermissions(c protocol.SetPermissions) (answer protocol.SetPermissionsAnswer, err error) {
	if s.ToolEnv == nil {
		return answer, errors.New("set_permissions: there are no tools")
	}
	before := s.ToolEnv.Rights()
	if err := s.changePermissions(c, before); err != nil {
		return answer, fmt.Errorf("set_permissions: %w", err)
	}
	now := s.ToolEnv.Rights()
	err = s.session.save(transcript.Settings{Permissions: &now.Permissions, Granted: &now.Granted, GrantedCwd: &now.GrantedCwd, At: time.Now().UTC()})
	if failed, ok := errors.AsType[*saveError](err); ok && s.ToolEnv.Narrow(before) {
		now = s.ToolEnv.Rights()
		failed.narrowed = &now
		// It is kept, and goes before all that is saved from now on; no turn begins
		// before that.
		_ = s.Journal.Append(transcript.Settings{Permissions: &now.Permissions, Granted: &now.Granted, GrantedCwd: &now.GrantedCwd, At: time.Now().UTC()})
	}
	s.toolsChanged()
	if err != nil {
		return answer, fmt.Errorf("set_permissions: %w", err)
	}
	return protocol.SetPermissionsAnswer{Permissions: now.Permissions}, nil
}

// revokeAllowances takes back what was allowed for the session, at once: also where that cannot be
// saved.
func (s *server) revokeAllowances(c protocol.RevokeAllowances) (answer protocol.RevokeAllowancesAnswer, err error) {
	if s.ToolEnv == nil {
		return answer, errors.New("revoke_allowances: there are no tools")
	}
	answer.Revoked, answer.Allowances = s.ToolEnv.Revoke(c.Allowances)
	if answer.Revoked == 0 {
		return answer, nil
	}
	if err := s.session.save(transcript.Revocation{Allowances: c.Allowances, At: time.Now().UTC()}); err != nil {
		return answer, fmt.Errorf("revoke_allowances: it holds until this process ends, and is not saved: %w", err)
	}
	return answer, nil
}

// changePermissions does what the command says, or nothing.
func (s *server) changePermissions(c protocol.SetPermissions, before toolenv.Rights) error {
	var asked protocol.Permissions
	switch {
	case (c.Preset == nil) == (c.Permissions == nil):
		return errors.New("want either preset or permissions")
	case c.Preset != nil:
		asked.Preset = *c.Preset
	default:
		asked = *c.Permissions
	}
	if err := asked.CheckTools(before.Permissions); err != nil {
		return err
	}
	if err := s.ToolEnv.SetPermissions(asked, c.Within); err != nil {
		return err
	}
	if c.Granted != nil {
		if err := s.ToolEnv.LowerGrant(*c.Granted); err != nil {
			s.ToolEnv.Return(before)
			return fmt.Errorf("member \"granted\": %w", err)
		}
	}
	return nil
}

// toolsChanged follows a change of the working directory or the permissions. It ends the
// MCP servers, which run where and as it was allowed when they were started: the next
// call starts them again.
func (s *server) toolsChanged() {
	s.background.start(func(ctx context.Context) {
		if err := s.Servers.Restart(ctx); err != nil {
			s.Log.Warn("an MCP server does not end", zap.Error(err))
		}
	})
	s.session.conversation.SetTools(s.ToolEnv.Tools().Specs())
	s.session.sendUpdate(s.out.post)
}

// setSystemPrompt holds for the turns to come; one that runs keeps its own.
func (s *server) setSystemPrompt(c protocol.SetSystemPrompt) (answer protocol.SetSystemPromptAnswer, err error) {
	var now prompt.Prompt
	record := transcript.Settings{PromptLayers: c.SystemPrompt == nil, At: time.Now().UTC()}
	switch {
	case c.SystemPrompt == nil:
		now, err = prompt.Load(prompt.Options{Home: s.Home, Cwd: s.ToolEnv.Cwd(), Bounds: s.ToolEnv})
	case *c.SystemPrompt == "":
		now = prompt.Prompt{Explicit: true}
	default:
		now, err = prompt.Load(prompt.Options{System: *c.SystemPrompt})
	}
	if now.Explicit {
		record.SystemPrompt, record.SystemPromptPath = &now.Text, &now.Path
	}
	if err == nil {
		err = s.session.save(record)
	}
	if err != nil {
		return answer, fmt.Errorf("set_system_prompt: %w", err)
	}
	s.session.setPrompt(now)
	s.session.sendUpdate(s.out.post)
	return protocol.SetSystemPromptAnswer{SystemPromptPath: optional(now.Path)}, nil
}
