//go:build !linux

package proctree

// SetUndumpable does nothing: only Linux has such a switch.
func SetUndumpable() error { return nil }
