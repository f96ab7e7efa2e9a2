//go:build !linux

package proctree

// CoarseTimers does nothing: there are no such timers.
func CoarseTimers() {}

// ExactTimers does nothing.
func ExactTimers() {}

// ExecWithCoarseTimers does nothing.
func ExecWithCoarseTimers() {}

// SetUndumpable does nothing: only Linux has such a switch.
func SetUndumpable() error { return nil }

// JoinLineage does nothing: there are no such numbers.
func JoinLineage() {}
