package turn

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// Compactor replaces the first messages of a conversation by a summary. All
// fields but Offline, Todo, Jobs, RuleIfFailed and Force are required.
type Compactor struct {
	Provider provider.Provider
	Model    string
	// Offline says that no language model stands behind the provider: summaries
	// are made by rule and cost nothing.
	Offline      bool
	Conversation *conversation.Conversation
	Journal      Recorder
	Log          *zap.Logger
	// Todo is what the agent has to do, which a summary ends with; nil is nothing.
	Todo fmt.Stringer
	// Jobs are those that run, which it ends with as well; nil are none.
	Jobs fmt.Stringer
	// RuleIfFailed makes a summary by rule where the model fails to write one.
	RuleIfFailed bool
	// Force takes a summary that is no shorter than what it stands for.
	Force bool
}

// Compaction is what became of one.
type Compaction struct {
	// Reason says why the conversation is as it was; "" if it is not.
	Reason  string
	Summary protocol.Message
	// TokensBefore and TokensAfter are estimates.
	TokensBefore, TokensAfter uint64
	// Usage is what it cost, also if nothing came of it.
	Usage protocol.TurnUsage
	// ByRule says that no model wrote the summary.
	ByRule bool
}

// Compact replaces old, which are the first messages of the Conversation, by a
// summary. It is in the journal before it holds. The error is that of ctx, the
// model or the journal, and then nothing has changed.
func (c Compactor) Compact(ctx context.Context, old []protocol.Message) (Compaction, error) {
	done := Compaction{ByRule: true}
	told := slices.DeleteFunc(slices.Clone(old), func(m protocol.Message) bool { return m.LeftOut }) // the service would refuse the summary, too
	text := ""
	if !c.Offline && len(told) > 0 {
		var err error
		text, done.Usage, err = conversation.SummarizeByModel(ctx, c.Provider, c.Model, told, c.Conversation.TextBudget())
		switch {
		case ctx.Err() != nil:
			return done, context.Cause(ctx)
		case err != nil && !c.RuleIfFailed:
			return done, fmt.Errorf("summarise: %w", err)
		}
		if done.ByRule = err != nil; done.ByRule {
			c.Log.Warn("the model could not summarise, so it is done by rule", zap.String("error", provider.Brief(err)))
		}
	}
	if done.ByRule {
		text = conversation.SummarizeByRule(told)
	}
	done.Summary = conversation.NewSummary(text, said(c.Todo), said(c.Jobs), time.Now())
	done.TokensBefore, done.TokensAfter = c.Conversation.CompactionTokens(len(old), done.Summary)
	if done.TokensAfter >= done.TokensBefore && !c.Force {
		done.Reason = "a summary would be no shorter"
		return done, nil
	}
	record := transcript.Compaction{
		Dropped: uint64(len(old)), Summary: done.Summary, TokensBefore: done.TokensBefore, TokensAfter: done.TokensAfter,
		Usage: &done.Usage, At: time.Now().UTC(),
	}
	if err := c.Journal.Commit(record); err != nil {
		return done, err
	}
	c.Conversation.Compact(len(old), done.Summary)
	return done, nil
}

func said(list fmt.Stringer) string {
	if list == nil {
		return ""
	}
	return list.String()
}
