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
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// Entry is one session of a list.
type Entry struct {
	Name      string
	UpdatedAt time.Time // when something was last written to it
	// Temp says that it is not kept for good: it is a temporary agent's, or unnamed.
	Temp bool
	transcript.Summary
	// Damaged says why it cannot be read; nil if it can. Summary is empty then.
	Damaged error
}

// List gives a page of the sessions, the latest used first, and how many there
// are in all. Those that cannot be read are there too. With temp, the temporary
// and the unnamed ones are among them. Limit bounds the page. Only the sessions of the page are
// read, and none of them twice.
func (c *Catalogue) List(offset, limit uint64, temp bool) (page []Entry, total uint64, err error) {
	all, err := c.found(false)
	if !temp {
		all = slices.DeleteFunc(all, func(e Entry) bool { return e.Temp })
	} else if err == nil {
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
		// The time of files is some milliseconds behind the clock.
		if begun := page[i].Header.CreatedAt; page[i].Damaged == nil && begun.After(page[i].UpdatedAt) {
			page[i].UpdatedAt = begun
		}
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
	unnamed := transcript.MaybeUnnamed(names(files))
	for _, file := range files {
		name, ok := strings.CutSuffix(file.Name(), suffix)
		if !ok || !file.Type().IsRegular() || api.IsTemp(name) != temp || !api.ValidAgentID(name) {
			continue
		}
		info, err := file.Info()
		if err != nil || info.Size() == 0 {
			continue // it is gone, or not begun
		}
		entries = append(entries, Entry{Name: name, UpdatedAt: info.ModTime(), Temp: temp || unnamed[name] && c.unnamed(name, info)})
	}
	return entries, nil
}

func names(files []os.DirEntry) []string {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = file.Name()
	}
	return names
}

// unnamed reports whether a session that may be unnamed is. A header does not change,
// so the same file is not read again.
func (c *Catalogue) unnamed(id string, info os.FileInfo) bool {
	c.mu.Lock()
	before, ok := c.headers[id]
	c.mu.Unlock()
	if ok && os.SameFile(before.info, info) {
		return before.unnamed
	}
	f, err := c.open(id)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return false
	}
	h := header{info: info, unnamed: transcript.Unnamed(id, f)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.headers == nil || len(c.headers) >= maxReadings {
		c.headers = map[string]header{}
	}
	c.headers[id] = h
	return h.unnamed
}

// header is what the header of a file told.
type header struct {
	info    os.FileInfo
	unnamed bool
}

// maxReadings is how many summaries are kept. When there are more, all are
// forgotten.
const maxReadings = 4 * api.MaxSessions

// reading is what was found in a file. It holds as long as the file is the same,
// and of the same length and time.
type reading struct {
	info    os.FileInfo
	summary transcript.Summary
	err     error // of Summarize
}

// Summary is what there is to say of one session; what it points to must not be
// changed. A file that was not written to since is not read again. The error
// wraps ErrNotFound, or says why it cannot be read.
func (c *Catalogue) Summary(id string) (transcript.Summary, error) {
	if !c.There(id) {
		return transcript.Summary{}, &Error{Name: id, Err: ErrNotFound}
	}
	f, err := c.open(id)
	if err != nil {
		return transcript.Summary{}, err
	}
	defer f.Close()
	info, err := f.Stat() // before it is read: what is written meanwhile is for the next time
	if err != nil {
		return transcript.Summary{}, &Error{Name: id, Err: err}
	}
	c.mu.Lock()
	r, ok := c.read[id]
	c.mu.Unlock()
	if !ok || !os.SameFile(r.info, info) || r.info.Size() != info.Size() || !r.info.ModTime().Equal(info.ModTime()) {
		r = reading{info: info}
		r.summary, r.err = transcript.Summarize(io.NewSectionReader(f, 0, info.Size()))
		if _, failed := errors.AsType[*fs.PathError](r.err); failed {
			return transcript.Summary{}, unreadable(id, r.err)
		}
		c.keep(id, r)
	}
	if r.err != nil {
		return transcript.Summary{}, &Error{Name: id, Err: r.err}
	}
	return r.summary, nil
}

func (c *Catalogue) keep(id string, r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read == nil || len(c.read) >= maxReadings {
		c.read = map[string]reading{}
	}
	c.read[id] = r
}

// open opens the file itself and not what a link leads to.
func (c *Catalogue) open(id string) (*os.File, error) {
	f, err := safefile.Open(c.Path(id), os.O_RDONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, safefile.ErrNotRegular):
		return nil, &Error{Name: id, Err: ErrNotFound}
	case err != nil:
		return nil, unreadable(id, err)
	}
	return f, nil
}

// The reasons for which nothing is done. Each comes in an *Error.
var (
	ErrNotFound = errors.New("there is no such session")
	ErrExists   = errors.New("there is a session of that name")
	ErrInUse    = errors.New("the session is in use")
	// ErrUnreadable comes with what the system said.
	ErrUnreadable = errors.New("the session cannot be read")
)

func unreadable(id string, err error) error {
	return &Error{Name: id, Err: fmt.Errorf("%w: %w", ErrUnreadable, err)}
}

// Error is a failure that names a session. Err is one of the reasons, a
// *transcript.LineError or *transcript.VersionError where its file is damaged,
// or what the system said.
type Error struct {
	Name string
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("session %s: %v", e.Name, e.Err) }
func (e *Error) Unwrap() error { return e.Err }
