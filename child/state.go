package child

import (
	"time"

	"nexus.internal/child/prompt"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

func (s *session) stats() protocol.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return protocol.Stats{
		SessionUsage: s.usage.tokens(), Cost: s.usage.cost(s.Models),
		MessageCount: uint64(s.conversation.Len()), Turns: s.turns, Model: s.settings.model.Model, SessionID: s.id,
	}
}

// state answers get_state, while active runs, which is nil if nothing does, and queued
// follow-ups wait.
func (s *session) state(active protocol.Command, queued int) protocol.State {
	tokens, count := s.conversation.Breakdown(), s.conversation.Len()
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.settings.prompt
	if s.Foreign != nil && !told.Explicit {
		told = prompt.Prompt{Explicit: true} // its program has a prompt of its own, and gets none
	}
	state := protocol.State{
		Queued: uint64(queued),
		Model:  s.settings.model.Model, Provider: s.settings.model.ProviderName,
		SessionID: s.id, SessionName: optional(s.Journal.Name()), SessionFile: optional(s.Journal.Path()), MessageCount: uint64(count),
		Cwd: s.ToolEnv.Cwd(), Preset: s.ToolEnv.Permissions().Preset,
		SystemPrompt: textcut.Head(told.Text, pieceSize), SystemPromptPath: optional(told.Path),
		SystemPromptLayers: told.Layers,
		Tokens:             tokens, MaxIterations: *s.settings.turns.MaxIterations, HaltedAtIterationLimit: s.haltedAtLimit,
		LastActionAt: stamp(s.endedAt), ParentAgentID: optional(s.ParentAgent),
		Usage: s.usage.tokens(), Cost: s.usage.cost(s.Models),
		Notes: uint64(len(s.settings.notes)), CompactAt: *s.settings.turns.CompactAt, MaxMessages: *s.settings.turns.MaxMessages,
		MCPServers: s.Servers.Status(), Settings: s.settings.turns, Todo: s.ToolEnv.Todo().Items(),
		CwdLost: s.State.Settings.CwdLost, LostCwd: s.State.Settings.LostCwd,
	}
	if active != nil {
		_, compacting := active.(protocol.Compact)
		state.Streaming = !compacting
		state.TurnID = optional(active.Ident())
	}
	if s.ToolEnv != nil {
		state.Permissions = s.ToolEnv.State()
	}
	state.Permissions.Preset = state.Preset
	if !told.Explicit {
		state.Environment = s.surroundings().Environment()
	}
	if len(state.SystemPrompt) < len(told.Text) {
		state.SystemPromptTruncated = &protocol.Truncation{Truncated: true, Size: uint64(len(told.Text)), File: told.Path}
	}
	if s.Foreign != nil {
		state.Program = new(s.Foreign.State())
		state.Program.Commands, state.Cost = s.commands(), s.usage.sum.Cost
		return state
	}
	for _, spec := range s.ToolEnv.Tools().Specs() {
		state.Permissions.Tools = append(state.Permissions.Tools, spec.Name)
	}
	return state
}

// sendUpdate tells the parent the state in short, if it asked for that: by send
// or post of the emitter.
func (s *session) sendUpdate(send func(protocol.Event)) {
	if !s.SessionUpdates {
		return
	}
	tokens, count := s.conversation.Breakdown(), s.conversation.Len()
	s.mu.Lock()
	update := protocol.SessionUpdate{
		SessionID: s.id, Model: s.settings.model.Model, Provider: s.settings.model.ProviderName,
		Preset: s.ToolEnv.Permissions().Preset, Cwd: s.ToolEnv.Cwd(),
		MessageCount: uint64(count), TotalTokens: tokens.Total, BudgetTokens: tokens.Budget,
		HaltedAtIterationLimit: s.haltedAtLimit, LastActionAt: stamp(s.endedAt),
	}
	s.mu.Unlock()
	if s.Foreign != nil {
		update.Kind = s.Foreign.Kind()
	}
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

// usageTotals are what a session used. The zero value is nothing. Its owner guards it.
type usageTotals struct {
	sum     protocol.TurnUsage
	byModel map[string]protocol.TurnUsage // the parts of sum, by Selected.name
}

func (t *usageTotals) add(model string, usage protocol.TurnUsage) {
	t.sum.Add(usage)
	if t.byModel == nil {
		t.byModel = map[string]protocol.TurnUsage{}
	}
	part := t.byModel[model]
	part.Add(usage)
	t.byModel[model] = part
}

func (t *usageTotals) tokens() protocol.SessionUsage {
	return protocol.SessionUsage{
		InputTokens: t.sum.InputTokens, OutputTokens: t.sum.OutputTokens,
		CacheReadInputTokens: t.sum.CacheReadInputTokens, CacheCreationInputTokens: t.sum.CacheCreationInputTokens,
		Estimated: t.sum.Estimated,
	}
}

// cost is the price of the usage, at today's prices, in US dollars; nil where one of
// them is not known.
func (t *usageTotals) cost(prices Models) *float64 {
	all := 0.0
	for model, usage := range t.byModel {
		if usage.InputTokens == 0 && usage.OutputTokens == 0 {
			continue
		}
		price, ok := prices.Price(model)
		if !ok {
			return nil
		}
		all += price.Cost(usage)
	}
	return &all
}
