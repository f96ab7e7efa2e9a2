package sessions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/safefile"
)

// File is one file of a snapshot. It may grow meanwhile; what comes after Size is
// not of the snapshot.
type File struct {
	Path     string // below the home, with slashes
	Size     int64  // bytes
	Modified time.Time
	io.ReaderAt
}

// Snapshot hands over the files of all saved sessions, with the last one that a
// person used, and returns how many sessions these are. Agents may work meanwhile,
// and sessions come, go and get other names: of each session the files are those of
// one moment, as a kill of the server at that moment would leave them, and one that
// gets another name is handed over once. Nobody waits for take. A File is valid
// until take returns.
func (c *Catalogue) Snapshot(take func(File) error) (count int, err error) {
	looked := map[string]bool{}
	var taken []fs.FileInfo // the files of the sessions
	for {
		ids, err := c.unseen(looked)
		if err != nil {
			return count, err
		}
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			s, err := c.measure(id)
			if errors.Is(err, ErrNotFound) { // it has gone, or has another name
				continue
			}
			if err != nil {
				return count, err
			}
			if slices.ContainsFunc(taken, func(other fs.FileInfo) bool { return os.SameFile(other, s.session) }) {
				s.close()
				continue
			}
			taken = append(taken, s.session)
			if err := s.give(take); err != nil {
				return count, err
			}
			count++
		}
	}
	s := &snapshot{home: c.home}
	defer s.close()
	if c.Last() != "" {
		if _, err := s.add(c.lastPath()); err != nil {
			return count, fmt.Errorf("read which session was used last: %w", err)
		}
	}
	return count, s.give(take)
}

// unseen lists the sessions that looked does not have, and notes them there.
func (c *Catalogue) unseen(looked map[string]bool) (ids []string, err error) {
	entries, err := os.ReadDir(c.layout.Named)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the sessions: %w", err)
	}
	names := []string{}
	for _, entry := range entries {
		if id, ok := strings.CutSuffix(entry.Name(), suffix); ok && c.Exists(id) {
			names = append(names, id)
		}
	}
	if last := c.Last(); api.IsTemp(last) {
		names = append(names, last)
	}
	for _, id := range names {
		if !looked[id] {
			looked[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// measure opens the files of a session, between two changes of the sessions.
func (c *Catalogue) measure(id string) (_ *snapshot, err error) {
	release, err := c.unchanging()
	if err != nil {
		return nil, err
	}
	defer release()
	if err := c.finishChange(); err != nil {
		return nil, err
	}
	s := &snapshot{home: c.home}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	session := func() error {
		file, err := c.open(id)
		if err != nil {
			return err
		}
		s.open = append(s.open, file)
		s.session, err = s.measure(file)
		return err
	}
	if kept, ok := c.kept.(interface { // a store that has no files has none in a snapshot
		Snapshot(agent string, take func(path string) (fs.FileInfo, error), session func() error) error
	}); ok {
		err = kept.Snapshot(id, s.add, session)
	} else {
		err = session()
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return nil, err
	}
	// Images are there before the session names them.
	if err = errors.Join(err, s.addAll(c.layout.Path(id, imagesSuffix))); err != nil {
		return nil, unreadable(id, err)
	}
	return s, nil
}

// snapshot is the files of one session.
type snapshot struct {
	home    string
	files   []File
	open    []*os.File
	session fs.FileInfo // of the session's own file
}

func (s *snapshot) close() {
	for _, f := range s.open {
		f.Close()
	}
}

// give hands the files over and closes them.
func (s *snapshot) give(take func(File) error) error {
	defer s.close()
	for _, f := range s.files {
		if err := take(f); err != nil {
			return err
		}
	}
	return nil
}

// add takes the file at path as it is now; nil if there is none.
func (s *snapshot) add(path string) (fs.FileInfo, error) {
	file, err := safefile.Open(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.open = append(s.open, file)
	return s.measure(file)
}

// measure takes an open file as it is now, instead of an earlier one of that path.
func (s *snapshot) measure(file *os.File) (fs.FileInfo, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	path, err := filepath.Rel(s.home, file.Name())
	if err != nil {
		return nil, err
	}
	taken := File{Path: filepath.ToSlash(path), Size: info.Size(), Modified: info.ModTime(), ReaderAt: file}
	s.files = append(slices.DeleteFunc(s.files, func(f File) bool { return f.Path == taken.Path }), taken)
	return info, nil
}

// addAll takes the regular files in a directory, which may not be there.
func (s *snapshot) addAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			_, failed := s.add(filepath.Join(dir, entry.Name()))
			err = errors.Join(err, failed)
		}
	}
	return err
}
