package sessions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
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
	var items []*item
	if !temp {
		items, total, err = c.named.page(c, offset, limit)
	} else if items, err = c.named.items(c); err == nil {
		var more []*item
		more, err = c.temp.items(c)
		items = append(items, more...)
		slices.SortFunc(items, later)
		items, total = cut(items, offset, limit), uint64(len(items))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list the sessions: %w", err)
	}
	page = make([]Entry, len(items))
	for i, found := range items {
		page[i] = Entry{Name: found.name, UpdatedAt: found.at, Temp: found.temp}
		page[i].Summary, page[i].Damaged = c.Summary(found.name)
		// The time of files is some milliseconds behind the clock.
		if begun := page[i].Header.CreatedAt; page[i].Damaged == nil && begun.After(page[i].UpdatedAt) {
			page[i].UpdatedAt = begun
		}
	}
	// One that was deleted meanwhile is none that is damaged.
	page = slices.DeleteFunc(page, func(e Entry) bool { return errors.Is(e.Damaged, ErrNotFound) })
	return page, total, nil
}

// unnamed reports whether a session that may be unnamed is. A file that was not written to
// since is not read again. The error is that it could not be read.
func (c *Catalogue) unnamed(id string, info os.FileInfo) (bool, error) {
	c.mu.Lock()
	before, ok := c.headers[id]
	c.mu.Unlock()
	if ok && unchanged(before.info, info) {
		return before.unnamed, nil
	}
	f, err := c.open(id)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return false, err
	}
	h := header{info: info, unnamed: transcript.Unnamed(id, f)}
	c.mu.Lock()
	defer c.mu.Unlock()
	remember(c.headers, id, h)
	return h.unnamed, nil
}

func unchanged(before, now os.FileInfo) bool {
	return os.SameFile(before, now) && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime())
}

// header is what the header of a file says.
type header struct {
	info    os.FileInfo
	unnamed bool
}

// maxReadings is how many summaries are kept, about 1 KB each. For each that there are more,
// any one is forgotten.
const maxReadings = 16 * api.MaxSessions

// remember keeps what was found in a file.
func remember[K comparable, T any](all map[K]T, id K, found T) {
	if _, known := all[id]; !known && len(all) >= maxReadings {
		for other := range all {
			delete(all, other)
			break
		}
	}
	all[id] = found
}

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
	return summary(context.Background(), c, id, math.MaxInt64)
}

// SummaryWithin is Summary of a session that a cluster can have. Once ctx ends it fails, also within the file; of a larger file, which is not read, with an
// *Error of ErrTooLarge.
func SummaryWithin(ctx context.Context, c *Catalogue, id string) (transcript.Summary, error) {
	return summary(ctx, c, id, supervisor.MaxSaved)
}

// summary is Summary of a file of at most limit bytes.
func summary(ctx context.Context, c *Catalogue, id string, limit int64) (transcript.Summary, error) {
	if !api.ValidAgentID(id) {
		return transcript.Summary{}, &Error{Name: id, Err: ErrNotFound}
	}
	c.mu.Lock()
	r, known := c.read[id]
	c.mu.Unlock()
	if info, err := os.Lstat(c.Path(id)); !known || err != nil || !unchanged(r.info, info) {
		f, err := c.open(id)
		if err != nil {
			return transcript.Summary{}, err
		}
		defer f.Close()
		if info, err = f.Stat(); err != nil { // before it is read: what is written meanwhile is for the next time
			return transcript.Summary{}, &Error{Name: id, Err: err}
		}
		if info.Size() == 0 { // it has not begun
			return transcript.Summary{}, &Error{Name: id, Err: ErrNotFound}
		}
		if info.Size() > limit {
			return transcript.Summary{}, tooLarge(id, info.Size())
		}
		r = reading{info: info}
		r.summary, r.err = transcript.Summarize(&yielding{Section: safefile.Within(ctx, f, info.Size())})
		if r.err != nil && ctx.Err() != nil {
			return transcript.Summary{}, &Error{Name: id, Err: context.Cause(ctx)}
		}
		if _, failed := errors.AsType[*fs.PathError](r.err); failed {
			return transcript.Summary{}, unreadable(id, r.err)
		}
		c.mu.Lock()
		remember(c.read, id, r)
		c.mu.Unlock()
	}
	if r.err != nil {
		return transcript.Summary{}, &Error{Name: id, Err: r.err}
	}
	return r.summary, nil
}

// A long session is read in pieces of pieceSize, each about a millisecond of work, and a
// pause after each leaves the processors to requests.
const (
	pieceSize  = 512 << 10
	piecePause = 500 * time.Microsecond
)

// yielding is a file whose reader pauses after each piece.
type yielding struct {
	*safefile.Section
	read int // bytes since the last pause
}

func (y *yielding) Read(p []byte) (int, error) {
	n, err := y.Section.Read(p)
	if y.read += n; y.read >= pieceSize {
		y.read = 0
		<-time.After(piecePause)
	}
	return n, err
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
	// ErrTooLarge comes with how large it is.
	ErrTooLarge = errors.New("it is larger than a session may be")
)

func tooLarge(id string, size int64) error {
	return &Error{Name: id, Err: fmt.Errorf("%w in a cluster: %d bytes with all that belongs to it, of %d", ErrTooLarge, size, int64(supervisor.MaxSaved))}
}

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
