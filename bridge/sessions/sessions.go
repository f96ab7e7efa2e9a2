// Package sessions knows where the saved conversations of agents lie.
//
//	catalogue := sessions.New(home, nil)
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
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor/store"
)

// Catalogue is the saved sessions of one home.
type Catalogue struct {
	home     string
	layout   store.Layout
	kept     store.Store
	changing sync.Mutex // held during each change
	named    directory
	temp     directory
	reader   bool // as of NewReader

	mu      sync.Mutex // guards both
	read    map[string]reading
	headers map[string]header
}

// New returns the catalogue of a home, and of what is kept of its agents: nil for what
// is in the home, as Local has it. It touches nothing.
func New(home string, kept store.Store) *Catalogue {
	if kept == nil {
		kept = Local(home, false, nil)
	}
	l := layoutOf(home)
	return &Catalogue{
		home: home, layout: l, kept: kept, named: directory{path: l.Named}, temp: directory{path: l.Temp, temp: true},
		read: map[string]reading{}, headers: map[string]header{},
	}
}

// NewReader is New for a home that is another server's, to which nothing is added: where the lock of changes is not there, none is made.
func NewReader(home string) *Catalogue {
	c := New(home, nil)
	c.reader = true
	return c
}

// Local returns the store of what is kept of agents beside their sessions in a home. With
// noSync the system brings accounts to the disk when it likes; log may be nil.
func Local(home string, noSync bool, log *zap.Logger) *store.Local {
	return store.NewLocal(store.Options{Layout: layoutOf(home), NoSync: noSync, Log: log})
}

// layoutOf is where the sessions of a home are, and what is kept of their agents.
func layoutOf(home string) store.Layout {
	return store.Layout{Named: filepath.Join(home, namedDir), Temp: filepath.Join(home, "run", "temp")}
}

// Tidy brings a home into order when no server runs in it: a change that its
// process did not live to finish is finished or undone, and what temporary
// agents left is removed, but for the last one that a person used.
func Tidy(home string) error {
	c := New(home, nil)
	release, err := c.exclusive()
	if err != nil {
		return err
	}
	defer release()
	errs := []error{c.finishChange()}
	last := c.Last()
	errs = append(errs, c.kept.Retain(func(agent string) bool { return !api.IsTemp(agent) || agent == last }))
	homes, _ := os.ReadDir(c.layout.Temp) // it may not be there
	for _, entry := range homes {
		if id, ok := strings.CutSuffix(entry.Name(), transcript.HomeSuffix); ok && id != last {
			errs = append(errs, c.removeHome(id))
		}
	}
	if !api.IsTemp(last) {
		errs = append(errs, os.RemoveAll(c.layout.Temp))
	}
	entries, err := os.ReadDir(c.layout.Temp)
	if !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, entry := range entries {
		if name := entry.Name(); isOurs(name) && name != last+suffix && name != last+imagesSuffix && name != last+transcript.HomeSuffix && name != last+transcript.UndoSuffix {
			errs = append(errs, os.RemoveAll(filepath.Join(c.layout.Temp, entry.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tidy the sessions: %w", err)
	}
	return nil
}

// Dir is the directory that id's session lies in: HOME/run/temp for a temporary
// agent, HOME/sessions for any other. It may not exist yet.
func (c *Catalogue) Dir(id string) string { return c.layout.Dir(id) }

// Path is the file of id's session. It may not exist yet.
func (c *Catalogue) Path(id string) string { return c.layout.Path(id, suffix) }

// namedDir is the directory of sessions in a home.
const namedDir = "sessions"

// What follows an agent's name in that of its session, of the directory of its images,
// and of a session that is being made.
const (
	suffix       = ".jsonl"
	imagesSuffix = ".files"
	nextSuffix   = ".next"
)

// isOurs reports whether a file of that name is of a session, and not one that the store
// has.
func isOurs(name string) bool {
	return slices.Contains([]string{suffix, imagesSuffix, nextSuffix, transcript.HomeSuffix, transcript.UndoSuffix}, filepath.Ext(name))
}

// isImage reports whether a file beside a session can be one of its images, which are called by the SHA-256 of what they hold.
func isImage(name string) bool {
	return len(name) == 2*sha256.Size && strings.Trim(name, "0123456789abcdef") == ""
}

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
	return errors.Join(os.RemoveAll(c.layout.Path(id, imagesSuffix)), os.RemoveAll(c.layout.Path(id, transcript.UndoSuffix)), c.removeHome(id), c.kept.Delete(id))
}

// removeHome removes the home of the agent's programs, which may have millions of files: it
// goes among the directories of dead processes, which the next process removes if this takes
// more than 2 s.
func (c *Catalogue) removeHome(id string) error {
	path := c.layout.Path(id, transcript.HomeSuffix)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	scratch := filepath.Join(c.home, "run", "scratch")
	aside := filepath.Join(scratch, "home-"+rand.Text())
	if errors.Join(safefile.Mkdir(filepath.Dir(scratch)), safefile.Mkdir(scratch), os.Rename(path, aside)) != nil {
		return safefile.RemoveBriefly(path)
	}
	_ = safefile.RemoveBriefly(aside) // the next process removes the rest
	return nil
}

func (c *Catalogue) lastPath() string { return filepath.Join(c.home, "run", "last") }

// Last is the session that a person used last, if it is still there; "" if none
// is. It may be a temporary one.
func (c *Catalogue) Last() string {
	data, err := safefile.Read(c.lastPath(), maxNote)
	if err != nil {
		return ""
	}
	name := strings.TrimSuffix(string(data), "\n")
	if !c.There(name) {
		return ""
	}
	return name
}

// SetLast says that a person uses the session now.
func (c *Catalogue) SetLast(id string) error {
	if !api.ValidAgentID(id) {
		return fmt.Errorf("remember the last session: %q is no name of one", id)
	}
	if err := safefile.Mkdir(filepath.Dir(c.lastPath())); err != nil {
		return fmt.Errorf("remember the last session: %w", err)
	}
	if err := safefile.Replace(c.lastPath(), []byte(id+"\n"), false); err != nil {
		return fmt.Errorf("remember the last session: %w", err)
	}
	return nil
}
