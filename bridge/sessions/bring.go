package sessions

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// Bring makes a session of another home one of c, as it stands: with its session id, its images and what is kept of its agent, under a name
// that is free here. It stays in the other home, too. Creator, unless "", is what the agent that created its agent is called here. It fails with an *Error of
// ErrNotFound, ErrExists, ErrInUse while a process has it open, or of what is damaged. It is whole or not there, also if the process is killed.
func Bring(c, from *Catalogue, id, name, creator string) error {
	if err := valid(id, name); err != nil {
		return err
	}
	held, err := from.hold(id)
	if err != nil {
		return err
	}
	defer safefile.Release(held)
	s, err := from.measure(id)
	if err != nil {
		return err
	}
	defer s.close()
	session := s.files[slices.IndexFunc(s.files, func(f File) bool { return f.Path == path.Join(namedDir, id+suffix) })]
	summary, err := transcript.Summarize(io.NewSectionReader(session, 0, session.Size))
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
		if err := transcript.Renamed(w, session, session.Size, header); err != nil || creator == "" {
			return err
		}
		line, err := transcript.Append(nil, transcript.Settings{ParentAgentID: &creator, At: time.Now().UTC()})
		if err == nil {
			_, err = w.Write(append(line, '\n'))
		}
		return err
	}
	if err := c.begin(name, write, func() error { return bringParts(c, s.files, id, name) }); err != nil {
		return err
	}
	_ = os.Chtimes(c.Path(name), session.Modified, session.Modified) // else it looks as if it was used just now
	return nil
}

// Beyond reports whether something was said in a session of c that was not in one of another catalogue, or not there.
func Beyond(c *Catalogue, id string, other *Catalogue, name string) (bool, error) {
	mine, err := said(c, id)
	if err != nil {
		return false, err
	}
	theirs, err := said(other, name)
	if err != nil {
		return false, err
	}
	return len(mine) > len(theirs) || !slices.Equal(mine, theirs[:len(mine)]), nil
}

// said is [transcript.Said] of a session.
func said(c *Catalogue, id string) ([][sha256.Size]byte, error) {
	f, err := c.open(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := transcript.Said(f)
	if err != nil {
		return nil, &Error{Name: id, Err: err}
	}
	return all, nil
}

// bringParts copies what belongs to a session, but for the session itself. The catalogue is held.
func bringParts(c *Catalogue, files []File, id, name string) error {
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
			_, err := io.Copy(w, io.NewSectionReader(f, 0, f.Size))
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
