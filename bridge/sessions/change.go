package sessions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor/store"
)

// A change has one moment at which it happens: the file of the session appears,
// gets its other name or goes. What belongs to it follows or goes before, and a
// note beside the sessions says what was meant. A process that finds such a note
// puts right what another did not live to do.

// Clone copies a session as it is now, also while its agent works: under another
// name and session id, with all settings and what was used of its limits. It
// fails with an *Error of ErrNotFound, ErrExists or of what is damaged.
func (c *Catalogue) Clone(src, dest string) error { return c.CloneBefore(src, dest, nil) }

// CloneBefore is Clone of the conversation before one message, by its place; nil is all of it. A message that is
// not there, or is none of a user's, is an *api.ParamError.
func (c *Catalogue) CloneBefore(src, dest string, message *uint64) error {
	if err := valid(src, dest); err != nil {
		return err
	}
	release, err := c.exclusive()
	if err != nil {
		return err
	}
	defer release()
	if !c.There(src) {
		return &Error{Name: src, Err: ErrNotFound}
	}
	f, err := c.open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat() // what is written meanwhile is not of this moment
	if err != nil {
		return unreadable(src, err)
	}
	cut, err := cutBefore(io.NewSectionReader(f, 0, info.Size()), message)
	if _, asked := errors.AsType[*api.ParamError](err); asked {
		return err
	}
	if err != nil {
		return &Error{Name: src, Err: err}
	}
	header := transcript.Header{Version: transcript.Version, SessionID: uuid.NewString(), Name: dest, CreatedAt: time.Now().UTC()}
	write := func(w io.Writer) error {
		if err := transcript.Renamed(w, f, info.Size(), header); err != nil {
			return err
		}
		_, err := w.Write(cut)
		return err
	}
	return c.begin(dest, write, func() error {
		images := c.layout.Path(src, imagesSuffix)
		if info, err := os.Lstat(images); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return unreadable(src, fmt.Errorf("%s: %w", images, safefile.ErrNotRegular))
		}
		err := c.kept.Clone(src, dest)
		if _, damaged := errors.AsType[*store.DamagedError](err); damaged {
			return unreadable(src, err)
		}
		if err != nil {
			return err
		}
		return copyAll(images, c.layout.Path(dest, imagesSuffix))
	})
}

// cutBefore is the line to add to a copy of a session that is to end before one message; none if that
// is nil.
func cutBefore(session io.ReadSeeker, message *uint64) (line []byte, err error) {
	if message == nil {
		_, err := transcript.Summarize(session)
		return nil, err
	}
	state, _, err := transcript.Parse(session)
	if err != nil {
		return nil, err
	}
	switch n := uint64(len(state.Messages)); {
	case *message >= n:
		return nil, api.Invalid("message", "there are %d messages", n)
	case state.Messages[*message].Role != protocol.RoleUser:
		return nil, api.Invalid("message", "message %d is none of a user's: a copy ends before a turn", *message)
	}
	line, err = transcript.Append(nil, transcript.Undo{Kept: *message, At: time.Now().UTC()})
	return append(line, '\n'), err
}

// begin makes a session that write writes, after prepare has put in place what
// belongs to it. The catalogue is held.
func (c *Catalogue) begin(id string, write func(io.Writer) error, prepare func() error) (err error) {
	if c.taken(id) {
		return &Error{Name: id, Err: ErrExists}
	}
	if err := safefile.Mkdir(c.Dir(id)); err != nil {
		return &Error{Name: id, Err: err}
	}
	if err := c.note("begin", id); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.finishChange()) }()
	next := c.layout.Path(id, nextSuffix)
	if err := errors.Join(c.removeParts(id), prepare(), writeSynced(next, write)); err != nil {
		return &Error{Name: id, Err: err}
	}
	return c.move(next, c.Path(id), id)
}

// Rename gives a session another name, with all that belongs to it, and those of
// the agents that it created say so. A temporary one becomes a named one so. It fails with an *Error of ErrNotFound, ErrExists,
// or ErrInUse while a process has it open.
func (c *Catalogue) Rename(old, name string) (err error) {
	if err := valid(old, name); err != nil {
		return err
	}
	release, err := c.exclusive()
	if err != nil {
		return err
	}
	defer release()
	held, err := c.hold(old)
	if err != nil {
		return err
	}
	defer safefile.Release(held)
	if c.taken(name) {
		return &Error{Name: name, Err: ErrExists}
	}
	if err := safefile.Mkdir(c.Dir(name)); err != nil {
		return &Error{Name: name, Err: err}
	}
	if err := c.note("rename", old, name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.finishChange()) }()
	if err := c.removeParts(name); err != nil {
		return &Error{Name: name, Err: err}
	}
	return c.move(c.Path(old), c.Path(name), name)
}

// Delete removes a session with all that belongs to it. It fails with an *Error
// of ErrNotFound, or ErrInUse while a process has it open.
func (c *Catalogue) Delete(id string) (err error) {
	if err := valid(id); err != nil {
		return err
	}
	release, err := c.exclusive()
	if err != nil {
		return err
	}
	defer release()
	held, err := c.hold(id)
	if err != nil {
		return err
	}
	defer safefile.Release(held)
	noted := c.note("delete", id)
	if noted != nil && !errors.Is(noted, syscall.ENOSPC) && !errors.Is(noted, syscall.EDQUOT) {
		return noted
	}
	defer func() { err = errors.Join(err, c.finishChange()) }()
	if err := errors.Join(os.Remove(c.Path(id)), safefile.SyncDir(c.Dir(id))); err != nil {
		return &Error{Name: id, Err: err}
	}
	if noted != nil { // a full disk had no room for a note, and has more now
		return c.removeParts(id)
	}
	return nil
}

// exclusive waits until no other change is under way, of this process or another.
func (c *Catalogue) exclusive() (release func(), err error) {
	if err := safefile.Mkdir(c.layout.Named); err != nil {
		return nil, fmt.Errorf("change the sessions: %w", err)
	}
	return c.lock(os.O_RDWR | os.O_CREATE)
}

// unchanging is exclusive for a reader, who creates nothing in a home that another user owns
// or that lies on a read-only file system, nor by a catalogue of NewReader. Such a home without the lock has had no change.
func (c *Catalogue) unchanging() (release func(), err error) {
	release, err = c.lock(os.O_RDONLY)
	if !errors.Is(err, fs.ErrNotExist) {
		return release, err
	}
	if home, err := os.Stat(c.home); err != nil || c.reader || !safefile.Ours(home) {
		return func() {}, err
	}
	release, err = c.exclusive()
	if errors.Is(err, syscall.EROFS) {
		return func() {}, nil
	}
	return release, err
}

// lock waits for the lock of all changes, opened with these flags.
func (c *Catalogue) lock(flags int) (release func(), err error) {
	c.changing.Lock()
	f, err := safefile.Open(filepath.Join(c.layout.Named, ".lock"), flags)
	if err == nil {
		if err = safefile.WaitLock(f); err != nil {
			f.Close()
		}
	}
	if err != nil {
		c.changing.Unlock()
		return nil, fmt.Errorf("change the sessions: %w", err)
	}
	return func() {
		safefile.Release(f)
		c.changing.Unlock()
	}, nil
}

func valid(ids ...string) error {
	for _, id := range ids {
		if !api.ValidAgentID(id) {
			return &Error{Name: id, Err: ErrNotFound}
		}
	}
	return nil
}

func (c *Catalogue) taken(id string) bool {
	_, err := os.Lstat(c.Path(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// hold opens a session and keeps every child from it until the file is closed.
func (c *Catalogue) hold(id string) (*os.File, error) {
	if !c.There(id) {
		return nil, &Error{Name: id, Err: ErrNotFound}
	}
	f, err := c.open(id)
	if err != nil {
		return nil, err
	}
	err = safefile.Lock(f)
	if errors.Is(err, safefile.ErrLocked) {
		err = ErrInUse
	}
	if err != nil {
		f.Close()
		return nil, &Error{Name: id, Err: err}
	}
	return f, nil
}

// move is the moment of a change. What stands at the new place stays there.
func (c *Catalogue) move(from, to, id string) error {
	err := rename(from, to)
	if errors.Is(err, fs.ErrExist) {
		return &Error{Name: id, Err: ErrExists}
	}
	if err == nil {
		err = errors.Join(safefile.SyncDir(filepath.Dir(to)), safefile.SyncDir(filepath.Dir(from)))
	}
	if err != nil {
		return &Error{Name: id, Err: err}
	}
	return nil
}
