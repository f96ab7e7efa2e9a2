package child

import (
	"context"
	"fmt"

	"nexus.internal/child/conversation"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
)

// compact replaces all but the last turns by a summary, because it was asked
// for. Forced, it keeps the last turn alone, and takes a summary that is no shorter.
func (s *server) compact(ctx context.Context, c protocol.Compact) protocol.Response {
	keep := conversation.KeepTurns
	if c.Force {
		keep = 1
	}
	old, ok, why := s.conversation.Compactable(keep)
	if !ok {
		return protocol.SuccessResponse(c, protocol.Compaction{Reason: why})
	}
	s.mu.Lock()
	model := s.model
	s.mu.Unlock()
	compactor := s.compactor(model)
	compactor.Force = c.Force
	done, err := compactor.Compact(ctx, old)
	s.mu.Lock()
	s.count(model.name(), done.Usage)
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return protocol.SuccessResponse(c, protocol.Compaction{Cancelled: true, Reason: "cancelled"})
	case err != nil:
		return protocol.FailureResponse(c.Ident(), c.Name(), refusalOf(fmt.Errorf("compact: %w", err)))
	case done.Reason != "":
		return protocol.SuccessResponse(c, protocol.Compaction{Reason: done.Reason})
	}
	by := "model"
	if done.ByRule {
		by = "rule"
	}
	s.sendUpdate(s.out.send)
	return protocol.SuccessResponse(c, protocol.Compaction{
		Compacted: true, Summary: done.Summary.Content, By: by,
		TokensBefore: done.TokensBefore, TokensAfter: done.TokensAfter,
	})
}

func (s *server) compactor(model Selected) turn.Compactor {
	return turn.Compactor{
		Provider: model.Provider, Model: model.Model, Offline: model.Offline,
		Conversation: s.conversation, Journal: s.Journal, Log: s.log,
	}
}
