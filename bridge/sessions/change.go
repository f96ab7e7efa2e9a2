package sessions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
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
func (c *Catalogue) Clone(src, dest string) error {
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
	if _, err := transcript.Summarize(io.NewSectionReader(f, 0, info.Size())); err != nil {
		return &Error{Name: src, Err: err}
	}
	header := transcript.Header{Version: transcript.Version, SessionID: uuid.NewString(), Name: dest, CreatedAt: time.Now().UTC()}
	write := func(w io.Writer) error { return transcript.Renamed(w, f, info.Size(), header) }
	return c.begin(dest, write, func() error {
		images := c.part(src, imagesSuffix)
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
		return copyAll(images, c.part(dest, imagesSuffix))
	})
}

// begin makes a session that write writes, after prepare has put in place what
// belongs to it. The catalogue is held.
func (c *Catalogue) begin(id string, write func(io.Writer) error, prepare func() error) (err error) {
	if c.taken(id) {
		return &Error{Name: id, Err: ErrExists}
	}
	if err := os.MkdirAll(c.Dir(id), 0o700); err != nil {
		return &Error{Name: id, Err: err}
	}
	if err := c.note("begin", id); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.settle()) }()
	next := c.part(id, nextSuffix)
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
	if err := os.MkdirAll(c.Dir(name), 0o700); err != nil {
		return &Error{Name: name, Err: err}
	}
	if err := c.note("rename", old, name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.settle()) }()
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
	defer func() { err = errors.Join(err, c.settle()) }()
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
	dir := c.Dir("named")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("change the sessions: %w", err)
	}
	c.changing.Lock()
	f, err := safefile.Open(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE)
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

// taken reports whether anything stands where the session's file would.
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

// maxNote bounds a note, in bytes: several times the longest one.
const maxNote = 4 << 10

// notePath is the file that says which change is under way.
func (c *Catalogue) notePath() string { return filepath.Join(c.Dir("named"), ".change") }

// note says what is about to be done, after what was left undone before.
func (c *Catalogue) note(what string, ids ...string) error {
	if err := c.settle(); err != nil {
		return err
	}
	text := strings.Join(append([]string{what}, ids...), " ") + "\n"
	if err := errors.Join(writeSynced(c.notePath(), bytesOf([]byte(text))), safefile.SyncDir(filepath.Dir(c.notePath()))); err != nil {
		_ = os.Remove(c.notePath()) // what is not meant any more; a torn one means nothing either
		return fmt.Errorf("note a change: %w", err)
	}
	return nil
}

// Changeable says why no session can be changed, as on a full disk; nil if one
// can. It is for who has something to end before a change.
func (c *Catalogue) Changeable() error {
	release, err := c.exclusive()
	if err != nil {
		return err
	}
	defer release()
	return errors.Join(c.note("nothing"), c.settle())
}

// settle brings what belongs to sessions to where the change that is noted left
// the sessions, and takes the note away. It may be done again and again. The catalogue is held.
func (c *Catalogue) settle() error {
	info, err := os.Lstat(c.notePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var data []byte
	if err == nil && info.Mode().IsRegular() {
		data, err = safefile.Read(c.notePath(), maxNote)
	}
	if err != nil {
		return fmt.Errorf("finish a change: %w", err)
	}
	words := strings.Fields(string(data)) // a torn note was written before anything else
	var errs []error
	switch {
	case !strings.HasSuffix(string(data), "\n") || len(words) < 2 || valid(words[1:]...) != nil:
	case words[0] == "rename" && len(words) == 3 && !c.taken(words[1]):
		err := os.Rename(c.part(words[1], imagesSuffix), c.part(words[2], imagesSuffix))
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		errs = append(errs, c.kept.Rename(words[1], words[2]), safefile.SyncDir(c.Dir(words[1])), safefile.SyncDir(c.Dir(words[2])), c.retie(words[1], words[2]))
	case words[0] == "begin" || words[0] == "delete":
		errs = append(errs, os.RemoveAll(c.part(words[1], nextSuffix)))
		if !c.taken(words[1]) {
			errs = append(errs, c.removeParts(words[1]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("finish a change: %w", err)
	}
	if err := os.RemoveAll(c.notePath()); err != nil { // all: somebody else may have put a folder there
		return fmt.Errorf("finish a change: %w", err)
	}
	return nil
}

// writeSynced writes a file that is on the disk when it returns, in the place of
// whatever stands there.
func writeSynced(path string, write func(io.Writer) error) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	f, err := safefile.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Sync(), f.Close())
}

// bytesOf writes data, for writeSynced.
func bytesOf(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// copyAll copies a file, or a folder of files. What is not there is no error;
// links and the like are left out.
func copyAll(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not there, or gone meanwhile
		}
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case d.Type().IsRegular():
			return copyFile(path, target)
		}
		return nil
	})
}

func copyFile(from, to string) error {
	in, err := safefile.Open(from, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := safefile.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// renameUnlessThere is for systems that cannot look and rename in one: who makes
// the file in between loses it.
func renameUnlessThere(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return fs.ErrExist
	}
	return os.Rename(from, to)
}
