package proctree

import (
	"fmt"
	"time"
)

// Exit is how a process ended.
type Exit struct {
	// Code is the exit status; -1 if a signal ended it.
	Code int
	// Signal is the signal's name as in "killed"; "" if none ended it.
	Signal string
	// Stderr is the tail of what it wrote to stderr lately, at most 4 KiB, redacted.
	Stderr string
	// Limit is the limit that ended it, as in "memory limit 512 MiB"; or "turn limit 60 s"
	// where it did not end a turn of that length. "" if none did.
	Limit string
}

// String is "exit status 3", "signal: killed" or "killed: memory limit 512 MiB".
func (e Exit) String() string {
	if e.Limit != "" {
		return "killed: " + e.Limit
	}
	if e.Signal != "" {
		return "signal: " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Usage is what one process takes by itself, not its tree; zero where the system does not tell.
type Usage struct {
	// CPU is its time on the processors, with that of what it started and waited for.
	CPU time.Duration
	// MemoryBytes are what it has in memory, shared pages included; 0 once it is gone.
	MemoryBytes int64
}
