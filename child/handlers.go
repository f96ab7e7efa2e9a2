package child

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nexus.internal/child/dialog"
	"nexus.internal/child/journal"
	"nexus.internal/child/provider"
	"nexus.internal/child/tool"
	"nexus.internal/child/upcall"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

const (
	maxLookups    = 4 // lists of models that are fetched at once; a further one is refused
	lookupTimeout = 10 * time.Second
)

// handle acts on one command, on the reader's goroutine.
func (s *server) handle(c protocol.Command) {
	switch c := c.(type) {
	case protocol.Prompt:
		s.prompt(c, c.Attachments)
	case protocol.FollowUp:
		s.prompt(c, nil)
	case protocol.Compact:
		if err := s.accept(c); err != nil {
			s.refuse(c, err)
		}
	case protocol.Abort:
		s.abort(c)
	case protocol.Ping:
		s.out.post(protocol.NewResponse(c, okBody{OK: true}))
	case protocol.NewSession:
		s.newSession(c)
	case protocol.SetModel:
		s.setModel(c)
	case protocol.GetMessages:
		s.getMessages(c)
	case protocol.GetAvailableModels:
		s.listModels(c)
	case protocol.GetSessionStats:
		s.out.post(protocol.NewResponse(c, s.stats()))
	case protocol.GetState:
		s.out.post(protocol.NewResponse(c, s.state()))
	case protocol.ToolsList:
		s.out.post(protocol.NewResponse(c, struct {
			OK    bool        `json:"ok"`
			Tools []tool.Spec `json:"tools"`
		}{true, s.tools()}))
	case protocol.SetCwd:
		s.setCwd(c)
	case protocol.SetPermissions:
		s.setPermissions(c)
	case protocol.PermissionResponse, protocol.HostResult:
		s.answer(c)
	case protocol.SetSystemPrompt, protocol.UpdateContext:
		s.refuse(c, errors.New(c.Name()+" is not there yet"))
	case protocol.Shutdown: // read acts on it
	}
}

// prompt accepts a turn. One that cannot be is only an error: it gets no
// agent_end and no response.
func (s *server) prompt(c protocol.Command, attachments []protocol.Attachment) {
	for _, a := range attachments {
		if err := a.Check(); err != nil {
			s.out.post(refusal(c.Ident(), err.Error()))
			return
		}
	}
	if err := s.accept(c); err != nil {
		s.out.post(refusal(c.Ident(), err.Error()))
	}
}

// refuse answers a command that is no prompt with a no.
func (s *server) refuse(c protocol.Command, err error) {
	s.out.post(protocol.Response{ID: c.Ident(), Command: c.Name(), Body: failureBody(err)})
}

func (s *server) newSession(c protocol.NewSession) {
	id := journal.NewSessionID()
	s.mu.Lock()
	busy := s.active != nil // and if not, nothing begins before the reader reads on
	s.mu.Unlock()
	if busy {
		s.refuse(c, errors.New("new_session is refused while a turn runs"))
		return
	}
	if err := s.Journal.Commit(transcript.Reset{SessionID: id, At: time.Now().UTC()}); err != nil {
		s.refuse(c, err)
		return
	}
	s.mu.Lock()
	s.sessionID, s.usage, s.turns, s.halted, s.lastAt = id, protocol.TurnUsage{}, 0, false, time.Time{}
	s.dialog.Clear()
	s.mu.Unlock()
	s.sendUpdate(s.out.post)
	s.out.post(protocol.NewResponse(c, struct {
		OK        bool   `json:"ok"`
		SessionID string `json:"session_id"`
	}{true, id}))
}

// setModel holds for the turns to come; one that runs goes on with its own.
func (s *server) setModel(c protocol.SetModel) {
	selected, err := s.choose(c.Model)
	if err != nil {
		s.refuse(c, err)
		return
	}
	record := transcript.Settings{Model: &selected.Model, Provider: &selected.ProviderName, At: time.Now().UTC()}
	if err := s.Journal.Commit(record); err != nil {
		s.refuse(c, err)
		return
	}
	s.mu.Lock()
	s.model = selected
	s.mu.Unlock()
	s.dialog.SetWindow(selected.ContextWindow)
	s.sendUpdate(s.out.post)
	s.out.post(protocol.NewResponse(c, struct {
		OK       bool   `json:"ok"`
		Model    string `json:"model"`
		Provider string `json:"provider"`
	}{true, selected.Model, selected.ProviderName}))
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

// listModels may ask the network, so it does not hold up the reader.
func (s *server) listModels(c protocol.GetAvailableModels) {
	s.mu.Lock()
	var err error
	switch {
	case s.closed:
		err = errShutdown
	case s.lookups >= maxLookups:
		err = fmt.Errorf("%d lists of models are being fetched already", maxLookups)
	default:
		s.lookups++
		s.side.Add(1) // under the lock, so that nobody waits for side yet
	}
	s.mu.Unlock()
	if err != nil {
		s.refuse(c, err)
		return
	}
	go func() {
		defer s.side.Done()
		ctx, cancel := context.WithTimeout(s.ctx, lookupTimeout)
		defer cancel()
		models, err := s.Models.List(ctx)
		s.mu.Lock()
		s.lookups--
		s.mu.Unlock()
		if err != nil {
			s.refuse(c, err)
			return
		}
		if models == nil {
			models = []provider.Model{}
		}
		s.out.post(protocol.NewResponse(c, struct {
			OK     bool             `json:"ok"`
			Models []provider.Model `json:"models"`
		}{true, models}))
	}()
}

func (s *server) tools() []tool.Spec {
	if r := s.registry(); r != nil {
		return r.Specs()
	}
	return []tool.Spec{}
}

// registry is that of the next turn; nil if there are no tools.
func (s *server) registry() *tool.Registry {
	if s.Work == nil {
		return nil
	}
	return s.Work.Tools()
}

func (s *server) cwd() string {
	if s.Work == nil {
		return ""
	}
	return s.Work.Cwd()
}

func (s *server) permissions() protocol.Permissions {
	if s.Work == nil {
		return protocol.Permissions{}
	}
	return s.Work.Permissions()
}

// setCwd holds for the turns to come; one that runs goes on where it is.
func (s *server) setCwd(c protocol.SetCwd) {
	if s.Work == nil {
		s.refuse(c, errors.New("set_cwd: there is no working directory"))
		return
	}
	before := s.cwd()
	if err := s.Work.SetCwd(c.Cwd); err != nil {
		s.refuse(c, fmt.Errorf("set_cwd: %w", err))
		return
	}
	cwd := s.cwd()
	if err := s.Journal.Commit(transcript.Settings{Cwd: &cwd, At: time.Now().UTC()}); err != nil {
		s.refuse(c, errors.Join(err, s.Work.SetCwd(before)))
		return
	}
	s.dialog.SetTools(s.tools())
	s.sendUpdate(s.out.post)
	s.out.post(protocol.NewResponse(c, struct {
		OK  bool   `json:"ok"`
		Cwd string `json:"cwd"`
	}{true, cwd}))
}

// setPermissions holds at once, also for the calls of a turn that runs.
func (s *server) setPermissions(c protocol.SetPermissions) {
	if s.Work == nil {
		s.refuse(c, errors.New("set_permissions: there are no tools"))
		return
	}
	asked, before := protocol.Permissions{}, s.permissions()
	switch {
	case (c.Preset == nil) == (c.Permissions == nil):
		s.refuse(c, errors.New("set_permissions: want either preset or permissions"))
		return
	case c.Preset != nil:
		asked.Preset = *c.Preset
	default:
		asked = *c.Permissions
	}
	if err := s.Work.SetPermissions(asked); err != nil {
		s.refuse(c, fmt.Errorf("set_permissions: %w", err))
		return
	}
	now := s.permissions()
	if err := s.Journal.Commit(transcript.Settings{Permissions: &now, At: time.Now().UTC()}); err != nil {
		s.refuse(c, errors.Join(err, s.Work.SetPermissions(before)))
		return
	}
	s.dialog.SetTools(s.tools())
	s.sendUpdate(s.out.post)
	s.out.post(protocol.NewResponse(c, struct {
		OK          bool                 `json:"ok"`
		Permissions protocol.Permissions `json:"permissions"`
	}{true, now}))
}

// answer passes on what the parent says to a question of a tool.
func (s *server) answer(c protocol.Command) {
	err := upcall.ErrUnknown
	if s.Parent != nil {
		err = s.Parent.Answer(c)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	s.out.post(protocol.NewResponse(c, okBody{OK: true}))
}

// sessionStats is the response to get_session_stats.
type sessionStats struct {
	OK                       bool   `json:"ok"`
	InputTokens              uint64 `json:"input_tokens"`
	OutputTokens             uint64 `json:"output_tokens"`
	CacheReadInputTokens     uint64 `json:"cache_read_input_tokens"`
	CacheCreationInputTokens uint64 `json:"cache_creation_input_tokens"`
	// Cost is in US dollars: 0 for the offline model, null where no price is
	// known.
	Cost         *float64 `json:"cost"`
	MessageCount int      `json:"message_count"`
	Turns        uint64   `json:"turns"`
	Model        string   `json:"model"`
	SessionID    string   `json:"session_id"`
}

func (s *server) stats() sessionStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := sessionStats{
		OK:          true,
		InputTokens: s.usage.InputTokens, OutputTokens: s.usage.OutputTokens,
		CacheReadInputTokens:     s.usage.CacheReadInputTokens,
		CacheCreationInputTokens: s.usage.CacheCreationInputTokens,
		MessageCount:             s.dialog.Len(), Turns: s.turns, Model: s.model.Model, SessionID: s.sessionID,
	}
	if s.model.Offline {
		stats.Cost = new(float64)
	}
	return stats
}

// permissions is what get_state tells of them.
type permissions struct {
	Level string   `json:"permission_level"`
	Cwd   string   `json:"cwd"` // no tool leaves it
	Tools []string `json:"tools"`
}

// childState is the response to get_state.
type childState struct {
	OK                     bool             `json:"ok"`
	Streaming              bool             `json:"streaming"` // a turn runs
	TurnID                 *string          `json:"turn_id"`   // id of the turn or compaction that runs
	Queued                 int              `json:"queued"`    // turns that wait
	Model                  string           `json:"model"`
	Provider               string           `json:"provider"`
	Reasoning              bool             `json:"reasoning"` // false: no model here is asked for it
	SessionID              string           `json:"session_id"`
	SessionName            *string          `json:"session_name"` // null if it is not saved
	SessionFile            *string          `json:"session_file"`
	MessageCount           int              `json:"message_count"`
	Cwd                    string           `json:"cwd"`
	Preset                 string           `json:"preset"`
	Permissions            permissions      `json:"permissions"`
	SystemPrompt           string           `json:"system_prompt"`
	SystemPromptPath       *string          `json:"system_prompt_path"`
	SystemPromptTruncated  *truncation      `json:"system_prompt_truncated,omitzero"`
	Tokens                 dialog.Breakdown `json:"tokens"`
	MaxIterations          int              `json:"max_iterations"`
	HaltedAtIterationLimit bool             `json:"halted_at_iteration_limit"`
	LastActionAt           *string          `json:"last_action_at"` // RFC 3339, UTC
	ParentAgentID          *string          `json:"parent_agent_id"`
	MCPServers             []string         `json:"mcp_servers"` // none are supported yet
}

func (s *server) state() childState {
	tokens, count := s.dialog.Breakdown(), s.dialog.Len()
	s.mu.Lock()
	defer s.mu.Unlock()
	state := childState{
		OK: true, Queued: len(s.queue),
		Model: s.model.Model, Provider: s.model.ProviderName,
		SessionID: s.sessionID, SessionFile: optional(s.Journal.Path()), MessageCount: count,
		Cwd: s.cwd(), Preset: s.permissions().Preset, Permissions: permissions{Level: s.permissions().Preset, Cwd: s.cwd(), Tools: []string{}},
		SystemPrompt: cut(s.Prompt.Text, pieceSize), SystemPromptPath: optional(s.Prompt.Path),
		Tokens: tokens, MaxIterations: s.MaxIterations, HaltedAtIterationLimit: s.halted,
		LastActionAt: stamp(s.lastAt), ParentAgentID: optional(s.ParentAgent), MCPServers: []string{},
	}
	if s.Journal != nil {
		state.SessionName = optional(s.State.Header.Name)
	}
	if s.active != nil {
		_, compacting := s.active.command.(protocol.Compact)
		state.Streaming = !compacting
		state.TurnID = optional(s.active.command.Ident())
	}
	if len(state.SystemPrompt) < len(s.Prompt.Text) {
		state.SystemPromptTruncated = &truncation{Truncated: true, Size: len(s.Prompt.Text), File: s.Prompt.Path}
	}
	for _, spec := range s.tools() {
		state.Permissions.Tools = append(state.Permissions.Tools, spec.Name)
	}
	return state
}

// sendUpdate tells the parent the state in short, if it asked for that: by send
// or post of the emitter.
func (s *server) sendUpdate(send func(protocol.Event)) {
	if !s.SessionUpdates {
		return
	}
	tokens, count := s.dialog.Breakdown(), s.dialog.Len()
	s.mu.Lock()
	update := protocol.SessionUpdate{
		SessionID: s.sessionID, Model: s.model.Model, Provider: s.model.ProviderName, Preset: s.permissions().Preset, Cwd: s.cwd(),
		MessageCount: uint64(count), TotalTokens: tokens.Total, BudgetTokens: tokens.Budget,
		HaltedAtIterationLimit: s.halted, LastActionAt: stamp(s.lastAt),
	}
	s.mu.Unlock()
	send(update)
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func stamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return optional(t.UTC().Format(time.RFC3339Nano))
}
