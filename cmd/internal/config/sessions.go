package config

import (
	"fmt"

	"nexus.internal/protocol/strict"
)

// Sessions says how long sessions are kept.
type Sessions struct {
	// KeepUnnamedDays is how many days unnamed sessions are kept after they were last
	// written to; 0 keeps them for good, and nil is DefaultKeepUnnamedDays.
	KeepUnnamedDays *uint64 `json:"keep_unnamed_days,omitzero"`
}

// DefaultKeepUnnamedDays is how many days an unnamed session is kept after it was last
// written to (SPEC §4.6).
const DefaultKeepUnnamedDays = 30

// maxKeepDays bounds Sessions.KeepUnnamedDays: a hundred years.
const maxKeepDays = 36_500

func (s Sessions) check() error {
	if s.KeepUnnamedDays != nil && *s.KeepUnnamedDays > maxKeepDays {
		return &strict.Error{Path: "sessions.keep_unnamed_days", Problem: fmt.Sprintf("is more than %d; 0 keeps them for good", maxKeepDays)}
	}
	return nil
}

// days is KeepUnnamedDays with its default.
func (s Sessions) days() int {
	if s.KeepUnnamedDays == nil {
		return DefaultKeepUnnamedDays
	}
	return int(*s.KeepUnnamedDays)
}
