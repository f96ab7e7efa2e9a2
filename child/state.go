package child

import (
	"time"

	"nexus.internal/child/dialog"
	"nexus.internal/child/mcp"
	"nexus.internal/child/tool"
	"nexus.internal/child/workplace"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

func (s *server) tools() []tool.Spec { return s.registry().Specs() }

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

// sessionUsage is what a session has used, in tokens.
type sessionUsage struct {
	InputTokens              uint64 `json:"input_tokens"`
	OutputTokens             uint64 `json:"output_tokens"`
	CacheReadInputTokens     uint64 `json:"cache_read_input_tokens"`
	CacheCreationInputTokens uint64 `json:"cache_creation_input_tokens"`
}

// sessionStats is the response to get_session_stats.
type sessionStats struct {
	OK bool `json:"ok"`
	sessionUsage
	// Cost is in US dollars: 0 for the offline model, null where the price of a model
	// that was used is not known.
	Cost         *float64 `json:"cost"`
	MessageCount int      `json:"message_count"`
	Turns        uint64   `json:"turns"`
	Model        string   `json:"model"`
	SessionID    string   `json:"session_id"`
}

func (s *server) stats() sessionStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sessionStats{
		OK: true, sessionUsage: s.used(), Cost: s.cost(),
		MessageCount: s.dialog.Len(), Turns: s.turns, Model: s.model.Model, SessionID: s.sessionID,
	}
}

// used is the sum of what was used. mu is held.
func (s *server) used() sessionUsage {
	return sessionUsage{
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

// permissions is what get_state tells of them.
type permissions struct {
	workplace.State
	Preset string   `json:"preset"`
	Tools  []string `json:"tools"` // that the model may call
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
	SessionName            *string          `json:"session_name"` // null if it has none
	SessionFile            *string          `json:"session_file"` // null if it is not saved
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
	Usage                  sessionUsage     `json:"usage"`      // of the session
	Cost                   *float64         `json:"cost"`       // as of get_session_stats
	Notes                  int              `json:"notes"`      // of update_context
	CompactAt              int              `json:"compact_at"` // percent; 0: never
	MaxMessages            int              `json:"max_messages"`
	MCPServers             []mcp.Status     `json:"mcp_servers"`
}

func (s *server) state() childState {
	tokens, count := s.dialog.Breakdown(), s.dialog.Len()
	s.mu.Lock()
	defer s.mu.Unlock()
	state := childState{
		OK: true, Queued: len(s.queue),
		Model: s.model.Model, Provider: s.model.ProviderName,
		SessionID: s.sessionID, SessionName: optional(s.Journal.Name()), SessionFile: optional(s.Journal.Path()), MessageCount: count,
		Cwd: s.cwd(), Preset: s.permissions().Preset, Permissions: permissions{Preset: s.permissions().Preset},
		SystemPrompt: textcut.Head(s.prompt.Text, pieceSize), SystemPromptPath: optional(s.prompt.Path),
		Tokens: tokens, MaxIterations: s.MaxIterations, HaltedAtIterationLimit: s.halted,
		LastActionAt: stamp(s.lastAt), ParentAgentID: optional(s.ParentAgent),
		Usage: s.used(), Cost: s.cost(), Notes: len(s.notes), CompactAt: max(s.CompactAt, 0), MaxMessages: s.MaxMessages,
	}
	if s.active != nil {
		_, compacting := s.active.command.(protocol.Compact)
		state.Streaming = !compacting
		state.TurnID = optional(s.active.command.Ident())
	}
	if s.Servers != nil {
		state.MCPServers = s.Servers.Status()
	}
	if s.Work != nil {
		state.Permissions.State = s.Work.State()
	}
	if len(state.SystemPrompt) < len(s.prompt.Text) {
		state.SystemPromptTruncated = &truncation{Truncated: true, Size: len(s.prompt.Text), File: s.prompt.Path}
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
