//go:build !unix

package blob

// syncDir has nothing to do: directories cannot be synced.
func syncDir(string) error { return nil }
