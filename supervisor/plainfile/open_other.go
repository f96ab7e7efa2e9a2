//go:build !unix

package plainfile

const openFlags = 0

// syncDir does nothing: such a system has no way to.
func syncDir(string) error { return nil }
