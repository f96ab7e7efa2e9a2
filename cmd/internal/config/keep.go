package config

import (
	"cmp"
	"fmt"
	"path/filepath"

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

func (s Sessions) days() int {
	if s.KeepUnnamedDays == nil {
		return DefaultKeepUnnamedDays
	}
	return int(*s.KeepUnnamedDays)
}

// Logs says whether and where the server logs sessions (SPEC §6.13).
type Logs struct {
	// Sessions says whether to log them; nil leaves it to whoever starts the server.
	Sessions *bool `json:"sessions,omitzero"`
	// Dir is the directory, absolute or below "~"; "" is logs/sessions in the home.
	Dir string `json:"dir" wire:"default"`
	// Events says to keep every event of an agent, too.
	Events bool `json:"events" wire:"default"`
	// KeepDays is how many days a log is kept after its last entry, once its session is gone; 0 keeps it for good, and nil is
	// DefaultKeepLogDays.
	KeepDays *uint64 `json:"keep_days,omitzero"`
}

// DefaultKeepLogDays is how many days a log is kept once its session is gone.
const DefaultKeepLogDays = 30

func (l Logs) check() error {
	if l.Dir != "" && !filepath.IsAbs(withHome(l.Dir, "/")) {
		return &strict.Error{Path: "logs.dir", Problem: fmt.Sprintf("is %q, want an absolute path, or one that begins with ~/", l.Dir)}
	}
	if l.KeepDays != nil && *l.KeepDays > maxKeepDays {
		return &strict.Error{Path: "logs.keep_days", Problem: fmt.Sprintf("is more than %d; 0 keeps them for good", maxKeepDays)}
	}
	return nil
}

// Days is KeepDays, or its default.
func (l Logs) Days() int {
	if l.KeepDays == nil {
		return DefaultKeepLogDays
	}
	return int(*l.KeepDays)
}

// SessionLogsDir holds the logs of sessions.
func (c *Config) SessionLogsDir() string { return cmp.Or(c.Logs.Dir, c.Home.Path(logsDir, "sessions")) }
