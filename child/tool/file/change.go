package file

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"nexus.internal/child/snapshot"
)

// change is one change of one file. All changes that the tools make go through [carryOut].
type change struct {
	attempt string // for errors: "write"
	at      *place // what is written, or deleted; where the file arrives that is moved or copied
	// One of from and content is set, or neither for a deletion.
	from    *place    // what is moved
	content io.Reader // what is to be in the file
	// arrives says that the file is new at its place, where overwrite alone lets it replace another one.
	arrives, overwrite bool
	mode               mode        // of the content
	seen               fs.FileInfo // the file when it was read; nil: it may have any state

	old          fs.FileInfo     // what was there; nil: nothing
	dir, fromDir *os.Root        // of at and from
	several      bool            // it may have to be undone
	temporary    string          // holds the content, in dir; "" before and when it is in its place
	aside        string          // holds what was there, in dir; "" if nothing does
	kept         *snapshot.Entry // nil before, and where nothing is kept
}

// mode is that of a file that is written.
type mode struct {
	perm       fs.FileMode // 0: as it was, or as is usual
	executable *bool       // nil: as perm says
}

// carryOut makes changes of different files, all of them or none. The contents are written beside their places
// first; nothing but renames and deletions, in the given order, is done after all that can be
// checked was. If one of these fails, those before it are undone. What is killed meanwhile leaves some of the changes made, each file
// whole, and temporary files. An error names the file. changed are the absolute paths that are not as before: after
// an error those that could not be put back.
func carryOut(ctx context.Context, changes ...*change) (changed []string, err error) {
	defer func() {
		for _, c := range slices.Backward(changes) {
			c.close(err != nil)
		}
	}()
	for _, c := range changes {
		c.several = len(changes) > 1
		if err := c.prepare(ctx); err != nil {
			return nil, c.explain(err)
		}
	}
	for _, c := range changes {
		if err := c.unchanged(); err != nil {
			return nil, c.explain(err)
		}
	}
	if err := ctx.Err(); err != nil { // an aborted call leaves all as it was
		return nil, changes[0].explain(err)
	}
	for i, c := range changes {
		c.keep()
		if err := c.do(); err != nil {
			c.at.space.Snapshots.Drop(c.kept)
			changed, undone := undo(changes[:i])
			return changed, errors.Join(c.explain(err), undone)
		}
	}
	for _, c := range changes {
		changed = append(changed, c.paths()...)
	}
	return changed, nil
}

// undo takes back what was done, the last first. changed is what it could not.
func undo(changes []*change) (changed []string, err error) {
	var failed []error
	for _, c := range slices.Backward(changes) {
		if err := c.undo(); err != nil {
			said := fmt.Errorf("%s could not be put back: %w", c.at.asked, bare(err))
			if c.aside != "" {
				said = fmt.Errorf("%w: what was in it is in %s beside it", said, c.aside)
				c.aside = "" // stays
			}
			failed, changed = append(failed, said), append(changed, c.paths()...)
			continue
		}
		c.at.space.Snapshots.Drop(c.kept)
	}
	return changed, errors.Join(failed...)
}

// paths are those that the change is about.
func (c *change) paths() []string {
	if c.from != nil {
		return []string{c.from.path, c.at.path}
	}
	return []string{c.at.path}
}

// prepare opens the directories, checks what is there, and writes the content beside its place. One of several
// changes also copies what was there.
func (c *change) prepare(ctx context.Context) (err error) {
	if c.from == nil && c.content == nil {
		c.dir, c.old, err = c.at.existing()
		if err == nil && !c.old.Mode().IsRegular() && !c.old.IsDir() {
			err = fmt.Errorf("it is %s", kind(c.old.Mode()))
		}
		return err
	}
	if c.from != nil {
		var moved fs.FileInfo
		if c.fromDir, moved, err = c.from.existing(); err != nil {
			return err
		}
		if !moved.Mode().IsRegular() { // a directory could have in it what is out of bounds
			return fmt.Errorf("it is %s", kind(moved.Mode()))
		}
	}
	if c.dir, err = c.at.parent(ctx); err != nil {
		return err
	}
	if c.old, err = c.room(); err != nil {
		return err
	}
	if c.several && c.old != nil {
		f, info, err := c.at.regular(c.attempt)
		if err != nil {
			return err
		}
		defer f.Close()
		if c.aside, err = stage(ctx, c.dir, f, mode{perm: info.Mode().Perm()}); err != nil {
			return err
		}
	}
	if c.content == nil {
		return nil
	}
	if c.mode.perm == 0 && c.old != nil {
		c.mode.perm = c.old.Mode().Perm()
	}
	c.temporary, err = stage(ctx, c.dir, c.content, c.mode)
	return err
}

// room checks that a file may be put at the place, whose directory is open, and returns what is there, nil for nothing.
func (c *change) room() (fs.FileInfo, error) {
	if err := c.at.permitIn(c.dir, c.at.base()); err != nil {
		return nil, err
	}
	it := "it is "
	if c.arrives {
		it = c.at.asked + " is there, and is "
	}
	old, err := c.dir.Lstat(c.at.base())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !old.Mode().IsRegular():
		return nil, errors.New(it + kind(old.Mode()))
	case c.arrives && !c.overwrite:
		return nil, fmt.Errorf("%s is there; overwrite replaces a file by a file", c.at.asked)
	case old.Mode().Perm()&0o200 == 0:
		return nil, errors.New(it + "read-only")
	}
	return old, nil
}

// unchanged looks once more whether the file is as it was seen.
func (c *change) unchanged() error {
	if c.seen != nil {
		if now, err := c.dir.Lstat(c.at.base()); err != nil || !sameState(c.seen, now) {
			return errors.New("something else has changed it just now; read it again")
		}
	}
	return nil
}

// do makes the change in one step: at any time there is what was there, or what is to be.
func (c *change) do() error {
	switch {
	case c.from != nil:
		return rename(c.fromDir, c.from.base(), c.dir, c.at.base())
	case c.content != nil:
		err := c.dir.Rename(c.temporary, c.at.base())
		if err == nil {
			c.temporary = ""
		}
		return err
	case c.several:
		aside := temporaryName()
		err := c.dir.Rename(c.at.base(), aside)
		if err == nil {
			c.aside = aside
		}
		return err
	default:
		return c.dir.Remove(c.at.base())
	}
}

// undo takes back what do did.
func (c *change) undo() error {
	if c.from != nil {
		if err := rename(c.dir, c.at.base(), c.fromDir, c.from.base()); err != nil {
			return err
		}
	}
	switch {
	case c.aside != "":
		err := c.dir.Rename(c.aside, c.at.base())
		if err == nil {
			c.aside = ""
		}
		return err
	case c.content != nil:
		return c.dir.Remove(c.at.base())
	default:
		return nil
	}
}

// close removes what is left beside the places, after a failure also the directories that were made.
func (c *change) close(failed bool) {
	for _, name := range []string{c.temporary, c.aside} {
		if name != "" {
			_ = c.dir.Remove(name) // it is not there any more, or stays
		}
	}
	if failed {
		c.at.unmake()
	}
	for _, dir := range []*os.Root{c.dir, c.fromDir} {
		if dir != nil {
			_ = dir.Close() // nothing waits to be written
		}
	}
}

// explain is an error as the model is told of it.
func (c *change) explain(err error) error {
	switch {
	case c.from == nil:
		return explain(c.attempt, c.at.asked, err)
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s %s: %s is on another file system: copy_file and delete_file do it", c.attempt, c.from.asked, c.at.asked)
	default:
		return explain(c.attempt, c.from.asked, err)
	}
}

// rename renames a file of one directory into another.
func rename(from *os.Root, name string, to *os.Root, newName string) error {
	of, err := from.Open(".")
	if err != nil {
		return err
	}
	defer of.Close()
	into, err := to.Open(".")
	if err != nil {
		return err
	}
	defer into.Close()
	return unix.Renameat(int(of.Fd()), name, int(into.Fd()), newName)
}

func temporaryName() string { return ".nexus-" + rand.Text() + ".tmp" }

// stage writes a file with the content, and returns its name. One that is to have a certain mode is the
// owner's alone before: a descriptor that somebody opened meanwhile would read all of it.
func stage(ctx context.Context, dir *os.Root, content io.Reader, m mode) (name string, err error) {
	name = temporaryName()
	first := fs.FileMode(0o666)
	if m.perm != 0 {
		first = 0o600
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, first)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, cancelled{ctx, content})
	if err == nil {
		err = m.set(f)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = dir.Remove(name) // the error is what counts
	}
	return name, err
}

// set gives the mode to a new file.
func (m mode) set(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	perm := cmp.Or(m.perm, info.Mode().Perm())
	switch {
	case m.executable == nil:
	case *m.executable: // by those who may read it
		perm |= (perm & 0o444) >> 2
	default:
		perm &^= 0o111
	}
	if perm == info.Mode().Perm() {
		return nil
	}
	return f.Chmod(perm)
}
