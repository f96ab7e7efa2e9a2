package sessions

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/transcript"
)

// Entry is one session of a list.
type Entry struct {
	Name      string
	UpdatedAt time.Time // when something was last written to it
	transcript.Summary
	// Damaged says why it cannot be read; nil if it can. Summary is empty then.
	Damaged error
}

// List gives a page of the sessions, the latest used first, and how many there
// are in all. Those that cannot be read are there too. With temp, the temporary
// ones are among them. Limit bounds the page. Only the sessions of the page are
// read, each of them whole.
func (c *Catalogue) List(offset, limit uint64, temp bool) (page []Entry, total uint64, err error) {
	all, err := c.found(false)
	if err == nil && temp {
		var more []Entry
		more, err = c.found(true)
		all = append(all, more...)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list the sessions: %w", err)
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), strings.Compare(a.Name, b.Name))
	})
	total = uint64(len(all))
	page = all[min(offset, total):]
	page = page[:min(limit, uint64(len(page)))]
	for i := range page {
		page[i].Summary, page[i].Damaged = c.Summary(page[i].Name)
	}
	// One that was deleted meanwhile is none that is damaged.
	page = slices.DeleteFunc(page, func(e Entry) bool { return errors.Is(e.Damaged, ErrNotFound) })
	return page, total, nil
}

// found is every session of the home, or every temporary one, by name and time.
func (c *Catalogue) found(temp bool) ([]Entry, error) {
	dir := c.Dir("named")
	if temp {
		dir = tempDir(c.home)
	}
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(files))
	for _, file := range files {
		name, ok := strings.CutSuffix(file.Name(), suffix)
		if !ok || !file.Type().IsRegular() || api.IsTemp(name) != temp || !api.ValidAgentID(name) {
			continue
		}
		info, err := file.Info()
		if err != nil || info.Size() == 0 {
			continue // it is gone, or not begun
		}
		entries = append(entries, Entry{Name: name, UpdatedAt: info.ModTime()})
	}
	return entries, nil
}

// Summary is what there is to say of one session. The error wraps ErrNotFound,
// or says why it cannot be read.
func (c *Catalogue) Summary(id string) (transcript.Summary, error) {
	data, err := c.read(id)
	if err != nil {
		return transcript.Summary{}, err
	}
	summary, err := transcript.Summarize(data)
	if err != nil {
		return transcript.Summary{}, &Error{Name: id, Err: err}
	}
	return summary, nil
}

// read reads the file of a session. A link is none.
func (c *Catalogue) read(id string) ([]byte, error) {
	if !c.there(id) {
		return nil, &Error{Name: id, Err: ErrNotFound}
	}
	f, err := c.open(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, &Error{Name: id, Err: err}
	}
	return data, nil
}

// open opens the file itself and not what a link leads to.
func (c *Catalogue) open(id string) (*os.File, error) {
	f, err := openFile(c.Path(id))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Error{Name: id, Err: ErrNotFound}
	case err != nil:
		return nil, &Error{Name: id, Err: err}
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, &Error{Name: id, Err: ErrNotFound}
	}
	return f, nil
}

// The reasons for which nothing is done. Each comes in an *Error.
var (
	ErrNotFound = errors.New("there is no such session")
	ErrExists   = errors.New("there is a session of that name")
	ErrInUse    = errors.New("the session is in use")
)

// Error is a failure that names a session. Err is one of the reasons, a
// *transcript.LineError or *transcript.VersionError where its file is damaged,
// or what the system said.
type Error struct {
	Name string
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("session %s: %v", e.Name, e.Err) }
func (e *Error) Unwrap() error { return e.Err }
