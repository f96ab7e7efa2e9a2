package sessions

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// Bring makes a session of another home one of c, as it stands: with its session id, its images and what is kept of its agent, under a name
// that is free here. It stays in the other home, too. Creator, unless "", is what the agent that created its agent is called here. It fails with an *Error of
// ErrNotFound, ErrExists, ErrInUse while a process has it open, ErrTooLarge, of what is damaged, or of the end of ctx, which ends it also within a file. It is whole or not
// there, also if the process is killed.
func Bring(ctx context.Context, c, from *Catalogue, id, name, creator string) error {
	if err := valid(id, name); err != nil {
		return err
	}
	s, held, err := coming(from, id)
	if err != nil {
		return err
	}
	defer safefile.Release(held)
	defer s.close()
	session := s.own(id)
	summary, err := transcript.Summarize(safefile.Within(ctx, session, session.Size))
	if err != nil {
		return &Error{Name: id, Err: err}
	}
	release, err := c.exclusive()
	if err != nil {
		return err
	}
	defer release()
	header := summary.Header
	header.Name = name
	write := func(w io.Writer) error {
		if err := transcript.Renamed(w, safefile.Within(ctx, session, session.Size), session.Size, header); err != nil || creator == "" {
			return err
		}
		line, err := transcript.Append(nil, transcript.Settings{ParentAgentID: &creator, At: time.Now().UTC()})
		if err == nil {
			_, err = w.Write(append(line, '\n'))
		}
		return err
	}
	if err := c.begin(name, write, func() error { return bringParts(ctx, c, s.files, id, name) }); err != nil {
		return err
	}
	_ = os.Chtimes(c.Path(name), session.Modified, session.Modified) // else it looks as if it was used just now
	return nil
}

// Comes says why Bring would refuse a session of another home: an *Error. It reads what tells how the session's files fit, and no more, and nothing of a
// session that is larger than one may be.
func Comes(from *Catalogue, id string) error {
	if err := valid(id); err != nil {
		return err
	}
	s, held, err := coming(from, id)
	if err != nil {
		return err
	}
	s.close()
	return safefile.Release(held)
}

// coming opens the files of a session that is to come into a cluster, and keeps every child from it until held is released.
func coming(c *Catalogue, id string) (*snapshot, *os.File, error) {
	held, err := c.hold(id)
	if err != nil {
		return nil, nil, err
	}
	s, err := comingHeld(c, id)
	if err != nil {
		return nil, nil, errors.Join(err, safefile.Release(held))
	}
	return s, held, nil
}

// comingHeld is coming of a session that is held.
func comingHeld(c *Catalogue, id string) (*snapshot, error) {
	if err := fits(c, id); err != nil {
		return nil, err
	}
	s, err := c.measure(id)
	if err != nil {
		return nil, err
	}
	session := s.own(id)
	if err := transcript.CheckHeader(session, session.Size); err != nil {
		s.close()
		return nil, &Error{Name: id, Err: err}
	}
	return s, nil
}

// own is the file of the session itself.
func (s *snapshot) own(id string) File {
	return s.files[slices.IndexFunc(s.files, func(f File) bool { return f.Path == path.Join(namedDir, id+suffix) })]
}

// fits says why the files of a session cannot come, as far as it can be told without reading any: that they are too large, or that one of the images is no file.
func fits(c *Catalogue, id string) error {
	size, err := safefile.Size(c.Path(id))
	if kept, ok := c.kept.(interface {
		Size(agent string) (int64, error)
	}); ok && err == nil {
		var more int64
		more, err = kept.Size(id)
		size += more
	}
	images := c.layout.Path(id, imagesSuffix)
	info, failed := os.Lstat(images)
	if err == nil && failed == nil && info.IsDir() { // whatever else stands there is refused when it is opened
		var entries []fs.DirEntry
		entries, err = os.ReadDir(images)
		for _, entry := range entries {
			if !isImage(entry.Name()) {
				continue
			}
			info, failed := entry.Info()
			if failed == nil && !info.Mode().IsRegular() {
				failed = &fs.PathError{Op: "open", Path: filepath.Join(images, entry.Name()), Err: safefile.ErrNotRegular}
			}
			if failed != nil {
				return unreadable(id, failed)
			}
			size += info.Size()
		}
	}
	if err != nil {
		return unreadable(id, err)
	}
	if size > supervisor.MaxSaved {
		return tooLarge(id, size)
	}
	return nil
}

// Beyond reports whether something was said in a session of c that was not in one of another catalogue, or not there. Once ctx ends it fails, also within a file; of a
// session that is larger than one may be, which is not read, with an *Error of ErrTooLarge.
func Beyond(ctx context.Context, c *Catalogue, id string, other *Catalogue, name string) (bool, error) {
	mine, err := said(ctx, c, id)
	if err != nil {
		return false, err
	}
	theirs, err := said(ctx, other, name)
	if err != nil {
		return false, err
	}
	return len(mine) > len(theirs) || !slices.Equal(mine, theirs[:len(mine)]), nil
}

// said is [transcript.Said] of a session.
func said(ctx context.Context, c *Catalogue, id string) ([][sha256.Size]byte, error) {
	f, err := c.open(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, unreadable(id, err)
	}
	if info.Size() > supervisor.MaxSaved {
		return nil, tooLarge(id, info.Size())
	}
	all, err := transcript.Said(safefile.Within(ctx, f, info.Size()))
	if err != nil {
		return nil, &Error{Name: id, Err: err}
	}
	return all, nil
}

// bringParts copies what belongs to a session, but for the session itself. The catalogue is held.
func bringParts(ctx context.Context, c *Catalogue, files []File, id, name string) error {
	dirs := map[string]bool{}
	for _, f := range files {
		part, of := strings.CutPrefix(f.Path, path.Join(namedDir, id))
		if !of || part == suffix {
			continue
		}
		to := c.layout.Path(name, filepath.FromSlash(part))
		if dir := filepath.Dir(to); dir != c.layout.Named && !dirs[dir] {
			dirs[dir] = true
			if err := safefile.Mkdir(dir); err != nil {
				return err
			}
		}
		err := writeSynced(to, func(w io.Writer) error {
			_, err := io.Copy(w, safefile.Within(ctx, f, f.Size))
			return err
		})
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.Path, err)
		}
	}
	var errs []error
	for dir := range dirs {
		errs = append(errs, safefile.SyncDir(dir))
	}
	return errors.Join(errs...)
}
