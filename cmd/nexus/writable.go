package main

import (
	"errors"
	"fmt"
	"io/fs"

	"nexus.internal/protocol/safefile"
)

// checkWritable says why nothing can be saved in a directory; nil if something can, or if
// the directory is not there: it is made when it is needed.
func checkWritable(dir string) error {
	err := safefile.Probe(dir, 4096)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("nothing can be saved: %w", err)
}
