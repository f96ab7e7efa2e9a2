//go:build !linux

package broker

// Protect does nothing here.
func Protect() error { return nil }
