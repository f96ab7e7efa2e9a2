package child

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/prompt"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// setModel holds for the turns to come; one that runs goes on with its own.
func (s *server) setModel(c protocol.SetModel) {
	selected, err := s.choose(c.Model)
	if err != nil {
		s.refuse(c, err)
		return
	}
	record := transcript.Settings{Model: &selected.Model, Provider: &selected.ProviderName, At: time.Now().UTC()}
	if err := s.save(record); err != nil {
		s.refuse(c, err)
		return
	}
	s.mu.Lock()
	s.model = selected
	if s.active == nil { // a turn that runs goes on with the window of its own model
		s.conversation.SetModel(selected.name(), selected.ContextWindow)
	}
	s.mu.Unlock()
	s.sendUpdate(s.out.post)
	s.out.post(protocol.SuccessResponse(c, protocol.SetModelAnswer{Model: selected.Model, Provider: selected.ProviderName}))
}

// choose finds a model by the name that a command gives it.
func (s *server) choose(name string) (Selected, error) {
	if name == "" {
		return Selected{}, errors.New("set_model: the name is empty")
	}
	s.mu.Lock()
	current := s.model.ProviderName
	s.mu.Unlock()
	selected, err := s.Models.Select(name, current)
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

// setCwd holds for the turns to come; one that runs goes on where it is. The
// prompt of the files is then that of the new directory.
func (s *server) setCwd(c protocol.SetCwd) {
	if s.ToolEnv == nil {
		s.refuse(c, errors.New("set_cwd: there is no working directory"))
		return
	}
	before := s.ToolEnv.Held()
	if err := s.ToolEnv.SetCwd(c.Cwd, c.Within); err != nil {
		s.refuse(c, fmt.Errorf("set_cwd: %w", err))
		return
	}
	held, now := s.ToolEnv.Held(), s.systemPrompt()
	var err error
	if !now.Explicit {
		now, err = prompt.Load(prompt.Options{Home: s.Home, Cwd: held.Cwd})
	}
	if err == nil {
		err = s.save(transcript.Settings{Cwd: &held.Cwd, Granted: &held.Granted, At: time.Now().UTC()})
	}
	if err != nil {
		s.ToolEnv.Return(before)
		s.refuse(c, fmt.Errorf("set_cwd: %w", err))
		return
	}
	s.setPrompt(now)
	s.restartServers()
	s.conversation.SetTools(s.tools())
	s.sendUpdate(s.out.post)
	s.out.post(protocol.SuccessResponse(c, protocol.SetCwdAnswer{Cwd: held.Cwd}))
}

// setPermissions holds at once, also for the calls of a turn that runs. Where it
// cannot be saved, what it takes from the agent holds all the same.
func (s *server) setPermissions(c protocol.SetPermissions) {
	if s.ToolEnv == nil {
		s.refuse(c, errors.New("set_permissions: there are no tools"))
		return
	}
	asked, before := protocol.Permissions{}, s.ToolEnv.Held()
	switch {
	case (c.Preset == nil) == (c.Permissions == nil):
		s.refuse(c, errors.New("set_permissions: want either preset or permissions"))
		return
	case c.Preset != nil:
		asked.Preset = *c.Preset
	default:
		asked = *c.Permissions
	}
	if err := asked.CheckTools(before.Permissions); err != nil {
		s.refuse(c, fmt.Errorf("set_permissions: %w", err))
		return
	}
	if err := s.ToolEnv.SetPermissions(asked, c.Within); err != nil {
		s.refuse(c, fmt.Errorf("set_permissions: %w", err))
		return
	}
	if c.Granted != nil {
		if err := s.ToolEnv.LowerGrant(*c.Granted); err != nil {
			s.ToolEnv.Return(before)
			s.refuse(c, fmt.Errorf("set_permissions: member \"granted\": %w", err))
			return
		}
	}
	now := s.ToolEnv.Held()
	err := s.save(transcript.Settings{Permissions: &now.Permissions, Granted: &now.Granted, At: time.Now().UTC()})
	if failed, ok := errors.AsType[*saveError](err); ok && s.ToolEnv.Narrow(before) {
		now = s.ToolEnv.Held()
		failed.narrowed = &now
		// It is kept, and goes before all that is saved from now on; no turn begins
		// before that.
		_ = s.Journal.Append(transcript.Settings{Permissions: &now.Permissions, Granted: &now.Granted, At: time.Now().UTC()})
	}
	s.restartServers()
	s.conversation.SetTools(s.tools())
	s.sendUpdate(s.out.post)
	if err != nil {
		s.refuse(c, fmt.Errorf("set_permissions: %w", err))
		return
	}
	s.out.post(protocol.SuccessResponse(c, protocol.SetPermissionsAnswer{Permissions: now.Permissions}))
}

// save commits records to the session. The error is a *saveError.
func (s *server) save(records ...transcript.Record) error {
	if err := s.Journal.Commit(records...); err != nil {
		return &saveError{err: err}
	}
	return nil
}

// setSystemPrompt holds for the turns to come; one that runs keeps its own.
func (s *server) setSystemPrompt(c protocol.SetSystemPrompt) {
	var now prompt.Prompt
	var err error
	record := transcript.Settings{PromptLayers: c.SystemPrompt == nil, At: time.Now().UTC()}
	switch {
	case c.SystemPrompt == nil:
		now, err = prompt.Load(prompt.Options{Home: s.Home, Cwd: s.cwd()})
	case *c.SystemPrompt == "":
		now = prompt.Prompt{Explicit: true}
	default:
		now, err = prompt.Load(prompt.Options{System: *c.SystemPrompt})
	}
	if now.Explicit {
		record.SystemPrompt, record.SystemPromptPath = &now.Text, &now.Path
	}
	if err == nil {
		err = s.save(record)
	}
	if err != nil {
		s.refuse(c, fmt.Errorf("set_system_prompt: %w", err))
		return
	}
	s.setPrompt(now)
	s.sendUpdate(s.out.post)
	s.out.post(protocol.SuccessResponse(c, protocol.SetSystemPromptAnswer{SystemPromptPath: optional(now.Path)}))
}

func (s *server) setPrompt(p prompt.Prompt) {
	for _, err := range p.LeftOut {
		s.log.Warn("left out a file of the project", zap.Error(err))
	}
	s.mu.Lock()
	s.prompt = p
	s.mu.Unlock()
	s.conversation.SetSystem(p.Text)
}

func (s *server) systemPrompt() prompt.Prompt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prompt
}

// restartServers ends the MCP servers, which run where and as it was allowed
// when they were started. The next call starts them again.
func (s *server) restartServers() {
	if s.Servers == nil {
		return
	}
	s.background(func() {
		if err := s.Servers.Restart(s.ctx); err != nil {
			s.log.Warn("an MCP server does not end", zap.Error(err))
		}
	})
}

// background runs f beside the reader and the turns, unless the end has begun.
func (s *server) background(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.backgroundTasks.Go(f) // under the lock, so that nobody waits for side yet
	}
}
