//go:build !unix

package outcomes

import "os"

// lock does nothing where a file cannot be locked by one call.
func lock(*os.File) error { return nil }

// release closes the file.
func release(f *os.File) error { return f.Close() }
