package child

import (
	"time"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

func (s *server) tools() []tool.Spec { return s.registry().Specs() }

// registry is that of the next turn; nil if there are no tools.
func (s *server) registry() *tool.Registry {
	if s.ToolEnv == nil {
		return nil
	}
	return s.ToolEnv.Tools()
}

func (s *server) cwd() string {
	if s.ToolEnv == nil {
		return ""
	}
	return s.ToolEnv.Cwd()
}

func (s *server) permissions() protocol.Permissions {
	if s.ToolEnv == nil {
		return protocol.Permissions{}
	}
	return s.ToolEnv.Permissions()
}

func (s *server) stats() protocol.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return protocol.Stats{
		SessionUsage: s.used(), Cost: s.cost(),
		MessageCount: uint64(s.conversation.Len()), Turns: s.turns, Model: s.model.Model, SessionID: s.sessionID,
	}
}

// used is the sum of what was used. mu is held.
func (s *server) used() protocol.SessionUsage {
	return protocol.SessionUsage{
		InputTokens: s.usage.InputTokens, OutputTokens: s.usage.OutputTokens,
		CacheReadInputTokens: s.usage.CacheReadInputTokens, CacheCreationInputTokens: s.usage.CacheCreationInputTokens,
	}
}

// count adds to what was used. mu is held.
func (s *server) count(model string, usage protocol.TurnUsage) {
	s.usage.Add(usage)
	if s.byModel == nil {
		s.byModel = map[string]protocol.TurnUsage{}
	}
	sum := s.byModel[model]
	sum.Add(usage)
	s.byModel[model] = sum
}

// cost is the price of what the session used, at today's prices, in US dollars; nil where
// one of them is not known. mu is held.
func (s *server) cost() *float64 {
	all := 0.0
	for model, usage := range s.byModel {
		if usage.InputTokens == 0 && usage.OutputTokens == 0 {
			continue
		}
		price, ok := s.Models.Price(model)
		if !ok {
			return nil
		}
		all += price.Cost(usage)
	}
	return &all
}

func (s *server) state() protocol.State {
	tokens, count := s.conversation.Breakdown(), s.conversation.Len()
	s.mu.Lock()
	defer s.mu.Unlock()
	state := protocol.State{
		Queued: uint64(len(s.queue)),
		Model:  s.model.Model, Provider: s.model.ProviderName,
		SessionID: s.sessionID, SessionName: optional(s.Journal.Name()), SessionFile: optional(s.Journal.Path()), MessageCount: uint64(count),
		Cwd: s.cwd(), Preset: s.permissions().Preset,
		SystemPrompt: textcut.Head(s.prompt.Text, pieceSize), SystemPromptPath: optional(s.prompt.Path),
		Tokens: tokens, MaxIterations: uint64(s.MaxIterations), HaltedAtIterationLimit: s.halted,
		LastActionAt: stamp(s.lastAt), ParentAgentID: optional(s.ParentAgent),
		Usage: s.used(), Cost: s.cost(), Notes: uint64(len(s.notes)), CompactAt: uint64(max(s.CompactAt, 0)), MaxMessages: uint64(s.MaxMessages),
	}
	if s.active != nil {
		_, compacting := s.active.command.(protocol.Compact)
		state.Streaming = !compacting
		state.TurnID = optional(s.active.command.Ident())
	}
	if s.Servers != nil {
		state.MCPServers = s.Servers.Status()
	}
	if s.ToolEnv != nil {
		state.Permissions = s.ToolEnv.State()
	}
	state.Permissions.Preset = state.Preset
	if len(state.SystemPrompt) < len(s.prompt.Text) {
		state.SystemPromptTruncated = &protocol.Truncation{Truncated: true, Size: uint64(len(s.prompt.Text)), File: s.prompt.Path}
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
	tokens, count := s.conversation.Breakdown(), s.conversation.Len()
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
