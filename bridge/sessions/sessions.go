// Package sessions knows where the saved conversations of agents lie.
//
//	catalogue := sessions.New(home)
//	dir := catalogue.Dir("worker-1") // for the child that writes it
//	if catalogue.Exists("worker-1") { … }
//
// A named agent's session is HOME/sessions/ID.jsonl and outlives the agent. A
// temporary one (an id with a leading dot) is HOME/run/temp/ID.jsonl and goes
// with it, unless it is the last one that a person used. A child writes its own;
// this package reads, copies, renames and deletes those that no child has open,
// each change whole or not at all, also if the process is killed in it:
//
//	entries, total, err := catalogue.List(0, 50, false)
//	err = catalogue.Clone("worker-1", "worker-2")
//
// A Catalogue is safe for concurrent use; several processes may have one of the
// same home. It refuses ids that are not an agent's (api.ValidAgentID), so that
// no id can name a file elsewhere, and follows no links. The contract is SPEC.md
// §2, §4.6 and §6.3.
package sessions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"nexus.internal/bridge/api"
)

// Catalogue is the saved sessions of one home.
type Catalogue struct {
	home     string
	changing sync.Mutex // held during each change

	mu      sync.Mutex // guards both
	read    map[string]reading
	headers map[string]header
}

// New returns the catalogue of a home. It touches nothing.
func New(home string) *Catalogue { return &Catalogue{home: home} }

// tempDir is the directory of the temporary sessions of a home.
func tempDir(home string) string { return filepath.Join(home, "run", "temp") }

// Tidy brings a home into order when no server runs in it: a change that its
// process did not live to finish is finished or undone, and what temporary
// agents left is removed, but for the last one that a person used.
func Tidy(home string) error {
	c := New(home)
	release, err := c.exclusive()
	if err != nil {
		return err
	}
	defer release()
	errs := []error{c.settle()}
	last := c.Last()
	if !api.IsTemp(last) {
		errs = append(errs, os.RemoveAll(tempDir(home)))
	}
	entries, err := os.ReadDir(tempDir(home))
	if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, entry := range entries {
		if !belongs(entry.Name(), last) {
			errs = append(errs, os.RemoveAll(filepath.Join(tempDir(home), entry.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tidy the sessions: %w", err)
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
func (c *Catalogue) Path(id string) string { return c.part(id, suffix) }

// UsagePath is the file of what id used of its limits (SPEC §5.7).
func (c *Catalogue) UsagePath(id string) string { return c.part(id, ".usage") }

const suffix = ".jsonl"

// parts are what belongs to a session beside its file, by what follows its name.
var parts = []struct {
	suffix string
	// copied says that it goes with the conversation, so that a copy has it too;
	// the rest is the agent's own.
	copied bool
}{
	{".files", true}, // images
	{".usage", true},
	{".outcomes", false},
	{".events", false},
}

// part is the path of one of them.
func (c *Catalogue) part(id, suffix string) string { return filepath.Join(c.Dir(id), id+suffix) }

// belongs reports whether a file of that name is of the session id.
func belongs(name, id string) bool {
	rest, ok := strings.CutPrefix(name, id)
	if !ok {
		return false
	}
	for _, p := range parts {
		if rest == p.suffix {
			return true
		}
	}
	return rest == suffix
}

// OutcomesPath is the file of how the prompts of id ended (SPEC §5.3).
func (c *Catalogue) OutcomesPath(id string) string { return c.part(id, ".outcomes") }

// EventsDir is the directory of id's events (SPEC §5.6).
func (c *Catalogue) EventsDir(id string) string { return c.part(id, ".events") }

// Exists reports whether a saved session of that name is there. A temporary
// agent has none, whatever an earlier run left behind.
func (c *Catalogue) Exists(id string) bool { return !api.IsTemp(id) && c.There(id) }

// There reports whether a session of that name is there to be gone on with,
// temporary or not.
func (c *Catalogue) There(id string) bool {
	if !api.ValidAgentID(id) {
		return false
	}
	info, err := os.Lstat(c.Path(id))
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

// RemoveTemp removes what a temporary agent left behind: its session and what
// belongs to it. It does nothing for a named one, and nothing if there is none.
func (c *Catalogue) RemoveTemp(id string) error {
	if !api.ValidAgentID(id) || !api.IsTemp(id) {
		return nil
	}
	err := os.Remove(c.Path(id))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err := errors.Join(err, c.removeParts(id)); err != nil {
		return fmt.Errorf("remove the session of temporary agent %s: %w", id, err)
	}
	return nil
}

func (c *Catalogue) removeParts(id string) error {
	var errs []error
	for _, p := range parts {
		errs = append(errs, os.RemoveAll(c.part(id, p.suffix)))
	}
	return errors.Join(errs...)
}
