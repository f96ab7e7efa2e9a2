package scripted

import (
	"context"
	"iter"

	"nexus.internal/child/provider"
)

// Options says what the model plays.
type Options struct {
	// Scenario is the text of a scenario file (SPEC §4.2). Nil means the
	// offline model (SPEC §4.1).
	Scenario []byte
}

// New returns the offline model, or one that plays a scenario. The error names
// the member of the scenario that is wrong.
func New(o Options) (provider.Provider, error) { return nil, nil }

var _ context.Context
var _ iter.Seq[int]
