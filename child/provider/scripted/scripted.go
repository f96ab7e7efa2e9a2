package scripted

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/scenario"
)

// Name is the provider's name and the id of its model.
const Name = "offline"

// contextWindow is what the offline model says it can take, in its own
// estimated tokens. It does not enforce it.
const contextWindow = 128_000

// Options says what the model plays.
type Options struct {
	// Scenario is the text of a scenario file (SPEC §4.2). Nil means the
	// offline model (SPEC §4.1).
	Scenario []byte
	// Models are other names that the configuration gives it.
	Models []string
}

// New returns the offline model, or one that plays a scenario. The error names
// the member of the scenario that is wrong.
func New(o Options) (provider.Provider, error) {
	if o.Scenario == nil {
		return &model{models: o.Models, memory: &memory{}}, nil
	}
	file, err := scenario.Parse(o.Scenario)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	s := (*script)(file)
	return &model{models: o.Models, scenario: s, memory: &memory{script: s}}, nil
}

// model answers by the scenario if it has one, else by the offline rules.
type model struct {
	models   []string // other names that it goes by
	scenario *script
	memory   *memory
}

// Models lists the one model.
func (*model) Models(context.Context) ([]protocol.Model, error) {
	return []protocol.Model{{
		Provider: Name, ModelID: Name, ModelName: "nexus offline model", ContextWindow: contextWindow,
	}}, nil
}

// Stream answers the last message of the request.
func (m *model) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		w := &answerWriter{ctx: ctx, yield: yield, memory: m.memory}
		switch {
		case r.Model != "" && r.Model != Name && !slices.Contains(m.models, r.Model):
			w.fail(fmt.Errorf("there is no model %q here, only %s", r.Model, strings.Join(append([]string{Name}, m.models...), ", ")))
		case m.scenario != nil:
			m.scenario.play(w, r)
		default:
			answer(w, r)
		}
		w.stop(r)
	}
}

// estimate is the number of tokens that a request is counted as: a quarter of
// its bytes, rounded up.
func estimate(r provider.Request) uint64 {
	size, text := len(r.System), r.TextBytes
	if text == 0 {
		for _, m := range r.Messages {
			text += provider.TextBytes(m)
		}
	}
	for _, t := range r.Tools {
		size += len(t.Name) + len(t.Description) + len(t.InputSchema)
	}
	return tokens(size + int(text))
}

func tokens(size int) uint64 { return uint64(size+3) / 4 }

// lastUser is the index of the last message that a user wrote, -1 for none.
func lastUser(messages []protocol.Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == protocol.RoleUser {
			return i
		}
	}
	return -1
}
