// Package sessions knows where the saved conversations of agents lie.
//
//	catalogue := sessions.New(home)
//	dir := catalogue.Dir("worker-1") // for the child that writes it
//	if catalogue.Exists("worker-1") { … }
//
// A named agent's session is HOME/sessions/ID.jsonl and outlives the agent. A
// temporary one (an id with a leading dot) is HOME/run/temp/ID.jsonl and goes
// with it. The package does not read sessions: a child writes and reads its own.
//
// A Catalogue has no state but the directory and is safe for concurrent use.
// It refuses ids that are not an agent's (api.ValidAgentID), so that no id can
// name a file elsewhere. The contract is SPEC.md §2 and §4.6.
package sessions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"nexus.internal/bridge/api"
)

// Catalogue is the saved sessions of one home.
type Catalogue struct {
	home string
}

// New returns the catalogue of a home. It touches nothing.
func New(home string) *Catalogue { return &Catalogue{home: home} }

// tempDir is the directory of the temporary sessions of a home.
func tempDir(home string) string { return filepath.Join(home, "run", "temp") }

// RemoveAllTemp removes what all temporary agents of a home left behind. It is
// for when none runs.
func RemoveAllTemp(home string) error {
	if err := os.RemoveAll(tempDir(home)); err != nil {
		return fmt.Errorf("remove the sessions of temporary agents: %w", err)
	}
	return nil
}

// Dir is the directory that id's session lies in: HOME/run/temp for a temporary
// agent, HOME/sessions for any other. It may not exist yet.
func (c *Catalogue) Dir(id string) string {
	if api.IsTemp(id) {
		return tempDir(c.home)
	}
	return filepath.Join(c.home, "sessions")
}

// Path is the file of id's session. It may not exist yet.
func (c *Catalogue) Path(id string) string { return filepath.Join(c.Dir(id), id+".jsonl") }

// UsagePath is the file of what id used of its limits (SPEC §5.7).
func (c *Catalogue) UsagePath(id string) string { return filepath.Join(c.Dir(id), id+".usage") }

// Exists reports whether a saved session of that name is there. A temporary
// agent has none, whatever an earlier run left behind.
func (c *Catalogue) Exists(id string) bool {
	if !api.ValidAgentID(id) || api.IsTemp(id) {
		return false
	}
	info, err := os.Lstat(c.Path(id))
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

// RemoveTemp removes what a temporary agent left behind: its session, the images
// of that and what it used. It does nothing for a named one, and nothing if there is no file.
func (c *Catalogue) RemoveTemp(id string) error {
	if !api.ValidAgentID(id) || !api.IsTemp(id) {
		return nil
	}
	var errs []error
	for _, path := range []string{c.Path(id), c.UsagePath(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, os.RemoveAll(filepath.Join(c.Dir(id), id+".files")))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the session of temporary agent %s: %w", id, err)
	}
	return nil
}
