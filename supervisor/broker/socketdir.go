package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"nexus.internal/protocol/safefile"
)

// makeSocketDir makes a directory for sockets in the first of the parents where
// sockets can be made, and removes those of dead servers there.
func makeSocketDir(parents []string) (*safefile.Dir, error) {
	failed := errors.New("it can be made nowhere")
	for _, parent := range parents {
		dir, err := safefile.MakeDir(parent)
		if err == nil {
			if err = trySocket(filepath.Join(dir.Path(), "try")); err == nil {
				return dir, nil
			}
			err = errors.Join(err, dir.Remove())
		}
		failed = errors.Join(failed, err)
	}
	return nil, fmt.Errorf("make the directory of sockets: %w", failed)
}

// trySocket makes a socket and removes it.
func trySocket(path string) error {
	ln, err := safefile.ListenSocket(path)
	if err != nil {
		return err
	}
	return errors.Join(ln.Close(), os.Remove(path))
}
