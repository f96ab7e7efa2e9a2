//go:build !unix

package safefile

const openFlags = 0

// syncDir does nothing: such a system has no way to.
func syncDir(string) error { return nil }
