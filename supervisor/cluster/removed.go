package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/safefile"
)

// Members say which machines there are to be, as far as this one knows. They ask nobody and do not wait, and are safe for concurrent use.
type Members interface {
	// Count is how many there are to be, of which a majority has to be heard for one to be [Node.Gone]; 0 where the servers of NATS are
	// others' and say that.
	Count() int
	// Counts reports whether a machine is one of these, as far as is known: one that was removed and has joined anew is none for a while.
	Counts(machine string) bool
	// Removed reports whether a machine was removed from the cluster, and has not joined it anew.
	Removed(machine string) bool
}

// anyMembers are those of a NATS that others have.
type anyMembers struct{}

func (anyMembers) Count() int          { return 0 }
func (anyMembers) Counts(string) bool  { return true }
func (anyMembers) Removed(string) bool { return false }

// Removed are the machines that were removed from a cluster, by name, and when: to the second, as certificates are made.
type Removed map[string]time.Time

const (
	// removedFile is where an engine finds them, in its directory.
	removedFile = "removed.json"
	maxRemoved  = 1 << 20 // bytes of it
)

// ReadRemoved reads those that the directory of an engine has; none if nothing was written there.
func ReadRemoved(dir string) (r Removed, err error) {
	text, err := safefile.Read(filepath.Join(dir, removedFile), maxRemoved)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil:
		err = format.Removed.Decode(text, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("which machines were removed: %w", err)
	}
	return r, nil
}

// Write has the engine of the directory know them, from the next connection on.
func (r Removed) Write(dir string) error {
	text, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return err
	}
	return safefile.Replace(filepath.Join(dir, removedFile), text, true)
}

// Refuse says why a machine is not let in that has had its certificate, or has run, since then; nil if it is.
func (r Removed) Refuse(machine string, since time.Time) error {
	at, ok := r[machine]
	if !ok || !since.Before(at) {
		return nil
	}
	return fmt.Errorf("the machine %s was removed from the cluster on %s, and joins it only with a certificate that was made since", machine, at.UTC().Format(time.RFC3339))
}
