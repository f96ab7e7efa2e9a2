package protocol

import (
	"errors"
	"fmt"
	"slices"

	"nexus.internal/protocol/strict"
)

// TurnSettings say how turns run. What is nil is not said.
type TurnSettings struct {
	// MaxIterations bounds the model calls of one turn, from 1.
	MaxIterations *uint64 `json:"max_iterations,omitzero"`
	// MaxMessages is how many messages a request may carry, from 1.
	MaxMessages *uint64 `json:"max_messages,omitzero"`
	// CompactAt is how full the context may be, in percent, before old messages give way to a
	// summary; 0: never.
	CompactAt *uint64 `json:"compact_at,omitzero"`
	// ToolTimeoutS bounds one tool call, in seconds, whatever time it names; 0 is no such bound.
	ToolTimeoutS *float64 `json:"tool_timeout_s,omitzero"`
	// Temperature of the model, from 0 to 2; -1 is as the service does.
	Temperature *float64 `json:"temperature,omitzero"`
	// MaxOutputTokens bounds one answer; 0 is as the service does.
	MaxOutputTokens *uint64 `json:"max_output_tokens,omitzero"`
	// ReasoningEffort is low, medium or high; "" is as the model does.
	ReasoningEffort *string `json:"reasoning_effort,omitzero" enum:",low,medium,high"`
	// FallbackModel is asked in the place of a model whose service is down; "" is none.
	FallbackModel *string `json:"fallback_model,omitzero"`
}

// MaxToolTimeout bounds ToolTimeoutS, and maxSetting the counts.
const (
	MaxToolTimeout = 86400
	maxSetting     = 1_000_000
)

// Over puts what s says in the place of what holds.
func (s TurnSettings) Over(held TurnSettings) TurnSettings {
	over(&held.MaxIterations, s.MaxIterations)
	over(&held.MaxMessages, s.MaxMessages)
	over(&held.CompactAt, s.CompactAt)
	over(&held.ToolTimeoutS, s.ToolTimeoutS)
	over(&held.Temperature, s.Temperature)
	over(&held.MaxOutputTokens, s.MaxOutputTokens)
	over(&held.ReasoningEffort, s.ReasoningEffort)
	over(&held.FallbackModel, s.FallbackModel)
	return held
}

func over[T any](held **T, said *T) {
	if said != nil {
		*held = said
	}
}

// Check reports a value that cannot be set. The error is a *[strict.Error] whose path is the
// member. Whether there is such a model it does not know.
func (s TurnSettings) Check() error {
	within := func(member string, value *uint64, least, most uint64) error {
		if value != nil && (*value < least || *value > most) {
			return &strict.Error{Path: member, Problem: fmt.Sprintf("is not from %d to %d", least, most)}
		}
		return nil
	}
	if err := errors.Join(
		within("max_iterations", s.MaxIterations, 1, maxSetting), within("max_messages", s.MaxMessages, 1, maxSetting),
		within("compact_at", s.CompactAt, 0, 100), within("max_output_tokens", s.MaxOutputTokens, 0, 10*maxSetting),
	); err != nil {
		e, _ := errors.AsType[*strict.Error](err)
		return e
	}
	switch effort, model := Value(s.ReasoningEffort), Value(s.FallbackModel); {
	case s.ToolTimeoutS != nil && (*s.ToolTimeoutS < 0 || *s.ToolTimeoutS > MaxToolTimeout):
		return &strict.Error{Path: "tool_timeout_s", Problem: fmt.Sprintf("is not from 0 to %d", MaxToolTimeout)}
	case s.Temperature != nil && *s.Temperature != -1 && (*s.Temperature < 0 || *s.Temperature > 2):
		return &strict.Error{Path: "temperature", Problem: "is neither from 0 to 2 nor -1"}
	case !slices.Contains([]string{"", "low", "medium", "high"}, effort):
		return &strict.Error{Path: "reasoning_effort", Problem: fmt.Sprintf("is %.64q, want low, medium or high, or nothing", effort)}
	case model != "" && CheckModelName(model) != nil:
		return &strict.Error{Path: "fallback_model", Problem: "cannot be chosen: " + CheckModelName(model).Error()}
	}
	return nil
}
