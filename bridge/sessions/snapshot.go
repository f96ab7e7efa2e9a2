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

// ErrReplaced says that a session got the name of another one that had been handed over.
var ErrReplaced = errors.New("a session got the name of another one meanwhile")

// errNoDirectory says that a link, or the like, stands in the place of a session's directory.
var errNoDirectory = errors.New("is no directory of the session's own")

// Snapshot hands over the files of all sessions that are saved when it begins, with the last one
// that a person used, and returns how many sessions these are. Agents may work meanwhile,
// and sessions come, go and get other names: of each session the files are those of
// one moment, as a kill of the server at that moment would leave them, and one that
// gets another name is handed over once. Nobody waits for take. A File is valid
// until take returns. The error may wrap ErrReplaced: then another try may go well.
func (c *Catalogue) Snapshot(take func(File) error) (count int, err error) {
	there, err := c.listed()
	if err != nil {
		return 0, err
	}
	left := map[safefile.FileID]bool{} // sessions that were not handed over
	for _, one := range there {
		left[one.file] = true
	}
	given := map[string]bool{} // names
	give := func(id string, s *snapshot, err error) error {
		if errors.Is(err, ErrNotFound) { // it has gone, or has another name
			return nil
		}
		if err != nil {
			return err
		}
		file := safefile.Identify(s.session)
		switch {
		case !left[file]:
			s.close()
			return nil
		case given[id]:
			s.close()
			return fmt.Errorf("session %s: %w", id, ErrReplaced)
		}
		delete(left, file)
		given[id] = true
		count++
		return s.give(take)
	}
	for _, one := range there {
		s, err := c.measure(one.id)
		if err := give(one.id, s, err); err != nil {
			return count, err
		}
	}
	for len(left) > 0 { // what had another name than in the list
		id, s, err := c.measureLeft(left)
		if id == "" && err == nil {
			break // they have gone
		}
		if err := give(id, s, err); err != nil {
			return count, err
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

// saved is a session by its name and its file, which keeps its identity under any name.
type saved struct {
	id   string
	file safefile.FileID
}

// listed are the sessions between two of their changes.
func (c *Catalogue) listed() ([]saved, error) {
	release, err := c.unchanging()
	if err != nil {
		return nil, err
	}
	defer release()
	return c.list()
}

// Names are the names of all sessions, in any order.
func Names(c *Catalogue) ([]string, error) {
	all, err := c.listed()
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = one.id
	}
	return names, err
}

// list are the sessions. No change is under way.
func (c *Catalogue) list() (all []saved, err error) {
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
		info, err := os.Lstat(c.Path(id))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the sessions: %w", err)
		}
		all = append(all, saved{id, safefile.Identify(info)})
	}
	return all, nil
}

// measureLeft is measure for any of the sessions that are left, under the name that it has now;
// "" if none of them is there any more.
func (c *Catalogue) measureLeft(left map[safefile.FileID]bool) (id string, s *snapshot, err error) {
	release, err := c.unchanging()
	if err != nil {
		return "", nil, err
	}
	defer release()
	all, err := c.list()
	if err != nil {
		return "", nil, err
	}
	for _, one := range all {
		if left[one.file] {
			s, err := c.measureHeld(one.id)
			return one.id, s, err
		}
	}
	return "", nil, nil
}

// measure opens the files of a session, between two changes of the sessions.
func (c *Catalogue) measure(id string) (*snapshot, error) {
	release, err := c.unchanging()
	if err != nil {
		return nil, err
	}
	defer release()
	return c.measureHeld(id)
}

// Whole says why the files of a session, with what belongs to it, cannot be handed over by Snapshot: an *Error. It opens them, and reads what tells how they fit.
func Whole(c *Catalogue, id string) error {
	s, err := c.measure(id)
	if err == nil {
		s.close()
	}
	return err
}

// measureHeld is measure while no change of the sessions is under way.
func (c *Catalogue) measureHeld(id string) (_ *snapshot, err error) {
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

// addAll takes the images in a directory, which may not be there. What stands in its place is refused, a link to a directory
// above all: somebody else's files would be taken.
func (s *snapshot) addAll(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: errNoDirectory}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() && isImage(entry.Name()) {
			_, failed := s.add(filepath.Join(dir, entry.Name()))
			err = errors.Join(err, failed)
		}
	}
	return err
}
