package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// writable says why nothing can be saved in a directory; nil if something can, or if
// the directory is not there: it is made when it is needed.
func writable(dir string) error {
	file, err := os.CreateTemp(dir, ".writable-*")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("nothing can be saved: %w", err)
	}
	err = os.Remove(file.Name())                // now, so that nothing is left of a process that is killed
	_, failed := file.Write(make([]byte, 4096)) // a full disk still has room for a name
	if err = errors.Join(failed, err, file.Close()); err != nil {
		return fmt.Errorf("nothing can be saved: %w", err)
	}
	return nil
}
