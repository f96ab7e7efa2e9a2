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
func (w *worker) compact(ctx context.Context, c protocol.Compact) protocol.Response {
	keep := conversation.KeepTurns
	if c.Force {
		keep = 1
	}
	old, ok, why := w.conversation.Compactable(keep)
	if !ok {
		return protocol.SuccessResponse(c, protocol.Compaction{Reason: why})
	}
	model := w.current().model
	compactor := w.compactor(model)
	compactor.RuleIfFailed, compactor.Force = true, c.Force
	done, err := compactor.Compact(ctx, old)
	w.addUsage(model.name(), done.Usage)
	switch {
	case ctx.Err() != nil:
		return protocol.SuccessResponse(c, protocol.Compaction{Cancelled: true, Reason: "cancelled"})
	case err != nil:
		return failure(c, fmt.Errorf("compact: %w", err))
	case done.Reason != "":
		return protocol.SuccessResponse(c, protocol.Compaction{Reason: done.Reason})
	}
	by := "model"
	if done.ByRule {
		by = "rule"
	}
	w.sendUpdate(w.out.send)
	return protocol.SuccessResponse(c, protocol.Compaction{
		Compacted: true, Summary: done.Summary.Content, By: by,
		TokensBefore: done.TokensBefore, TokensAfter: done.TokensAfter,
	})
}

func (w *worker) compactor(model Selected) turn.Compactor {
	return turn.Compactor{
		Provider: model.Provider, Model: model.Model, Offline: model.Offline,
		Conversation: w.conversation, Journal: w.Journal, Log: w.Log, Todo: w.ToolEnv.Todo(), Jobs: w.ToolEnv.Jobs(),
	}
}
