// Package snapshot keeps what files were before an agent's tools changed them, so that a turn's
// changes can be taken back:
//
//	store := snapshot.New(snapshot.Options{Dir: dir, Log: log})
//	store.BeginTurn(at)
//	entry := store.Keep(snapshot.Entry{Path: path, Was: was, Is: is}, file) // before the change
//	for _, entry := range slices.Backward(store.Turn(at)) { store.Done(entry, now) }
//
// Nothing is written before the first change. A change costs as much as was in the file.
package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
)

// Bounds of what is kept.
const (
	// MaxFile is how large a file may be of which a copy is kept, in bytes.
	MaxFile         = 64 << 20
	defaultMaxTotal = 256 << 20 // bytes
	// maxEntries bounds the changes of a session that are kept. The oldest give way.
	maxEntries = 4096
	maxMeta    = 1 << 20 // bytes of one entry
)

// State tells one state of a file from another. The zero State is that of no file.
type State struct {
	Device  uint64 `json:"device,omitzero"`
	Inode   uint64 `json:"inode,omitzero"`
	Size    int64  `json:"size,omitzero"`     // bytes
	ModTime int64  `json:"mod_time,omitzero"` // ns since 1970
}

// Past is what was at a place; the zero Past is nothing.
type Past struct {
	State State       `json:"state,omitzero"`
	Perm  fs.FileMode `json:"perm,omitzero"`
	Dir   bool        `json:"dir,omitzero"` // it was an empty directory
}

// Entry is one change of one file.
type Entry struct {
	// Turn is the time of the prompt that began the turn. Keep sets it.
	Turn time.Time `json:"turn"`
	// Path is absolute, and led through no symbolic link. From is that of a file that was
	// moved to Path; "" for no move.
	Path string `json:"path"`
	From string `json:"from,omitzero"`
	// Tool is the name of the one that changed it; "" in entries of earlier programs.
	Tool string `json:"tool,omitzero"`
	Was  Past   `json:"was,omitzero"`
	// Is is what the change leaves at Path.
	Is State `json:"is,omitzero"`
	// Made are directories that were made for it, absolute, the first above the others.
	Made []string `json:"made,omitzero"`
	// Lost says why what was in the file is not kept; "" if it is, or was not there.
	Lost string `json:"lost,omitzero"`
	// Undone says that the change was taken back.
	Undone bool `json:"undone,omitzero"`

	number int
	bytes  int64 // of the copy
}

// Options say where snapshots lie.
type Options struct {
	Dir string // made by the first change
	// MaxTotal bounds all copies, in bytes. The oldest give way. 0 is 256 MiB.
	MaxTotal int64
	Log      *zap.Logger // may be nil
}

// Store has the changes of one session. It is safe for concurrent use; a nil Store keeps
// nothing.
type Store struct {
	dir      string
	maxTotal int64
	log      *zap.Logger

	mu      sync.Mutex // guards all below, and the files
	turn    time.Time
	entries []*Entry // in the order of the changes; those on the disk once loaded
	loaded  bool
	total   int64 // bytes of all copies
	last    int   // the highest number
}

// New returns the Store of a directory, which it does not touch.
func New(o Options) *Store {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Store{dir: o.Dir, maxTotal: cmp.Or(o.MaxTotal, defaultMaxTotal), log: o.Log}
}

// BeginTurn says that what changes from now on belongs to the turn of the prompt of then.
func (s *Store) BeginTurn(at time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = at
}

// Keep keeps what was, before it changes; content is what was in the file, or nil. What cannot
// be kept is no error: the entry says why, and the change goes on. It is not on the disk for sure
// when it returns: a kill leaves it, the end of the machine may not.
func (s *Store) Keep(e Entry, content *os.File) *Entry {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	s.last++
	e.Turn, e.number = s.turn, s.last
	if content != nil {
		if err := s.copy(&e, content); err != nil {
			e.Lost = "what was in it could not be kept: " + err.Error()
		}
	}
	s.entries = append(s.entries, &e)
	s.write(&e)
	s.bound(&e)
	return &e
}

// copy copies what is in a file. mu is held.
func (s *Store) copy(e *Entry, content io.Reader) (err error) {
	if e.Was.State.Size > MaxFile {
		return fmt.Errorf("it had %d bytes, at most %d are kept", e.Was.State.Size, MaxFile)
	}
	if err := safefile.Mkdir(s.dir); err != nil {
		return bare(err)
	}
	f, err := safefile.Create(s.blob(e))
	if err != nil {
		return bare(err)
	}
	e.bytes, err = io.Copy(f, io.LimitReader(content, MaxFile+1))
	if err == nil && e.bytes != e.Was.State.Size {
		err = errors.New("it changed meanwhile")
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		_ = os.Remove(s.blob(e))
		e.bytes = 0
		return bare(err)
	}
	s.total += e.bytes
	return nil
}

// Drop takes back a Keep whose change was not made.
func (s *Store) Drop(e *Entry) {
	if s == nil || e == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(e)
}

// Turn are the changes of a turn, in their order.
func (s *Store) Turn(at time.Time) (list []*Entry) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	for _, e := range s.entries {
		if e.Turn.Equal(at) {
			list = append(list, e)
		}
	}
	return list
}

// Content opens what was in the file.
func (s *Store) Content(e *Entry) (*os.File, error) { return safefile.Open(s.blob(e), os.O_RDONLY) }

// Done says that a change was taken back, and that now is what is at its path since: for the
// changes before it, that is what they had left, also at another path, from which it was moved.
func (s *Store) Done(e *Entry, now State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Undone = true
	s.write(e)
	for _, earlier := range s.entries {
		if was := e.Was.State; earlier.number < e.number && was != (State{}) && earlier.Is == was {
			earlier.Is = now
			s.write(earlier)
		}
	}
}

// Forget removes the changes of a turn.
func (s *Store) Forget(at time.Time) {
	if s == nil {
		return
	}
	for _, e := range s.Turn(at) {
		s.Drop(e)
	}
}

// Clear removes all.
func (s *Store) Clear() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, s.loaded, s.total, s.last = nil, true, 0, 0
	return os.RemoveAll(s.dir)
}

// bound lets the oldest changes give way to the newest. mu is held.
func (s *Store) bound(newest *Entry) {
	for _, e := range slices.Clone(s.entries) {
		switch {
		case e == newest:
			return
		case len(s.entries) > maxEntries:
			s.remove(e)
		case s.total <= s.maxTotal:
			return
		case e.bytes > 0:
			s.total -= e.bytes
			e.bytes, e.Lost = 0, "later changes took the room for what was in it"
			_ = os.Remove(s.blob(e))
			s.write(e)
		}
	}
}

// remove removes an entry. mu is held.
func (s *Store) remove(e *Entry) {
	i := slices.Index(s.entries, e)
	if i < 0 {
		return
	}
	s.entries = slices.Delete(s.entries, i, i+1)
	s.total -= e.bytes
	_ = os.Remove(s.meta(e)) // they may be there no more, or never were
	_ = os.Remove(s.blob(e))
	if len(s.entries) == 0 {
		_ = os.Remove(s.dir)
	}
}

// write writes an entry; mu is held. One that cannot be written is kept in memory.
func (s *Store) write(e *Entry) {
	data, err := json.Marshal(*e)
	if err == nil {
		err = safefile.Mkdir(s.dir)
	}
	if err == nil {
		err = safefile.Replace(s.meta(e), data, false)
	}
	if err != nil {
		s.log.Warn("a change of a file can be taken back only by this process", zap.Error(err))
	}
}

// load reads what earlier processes kept, once. mu is held.
func (s *Store) load() {
	if s.loaded {
		return
	}
	s.loaded = true
	entries, err := safefile.ReadDir(s.dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("read what files were before their changes", zap.Error(err))
		}
		return
	}
	for _, entry := range entries {
		name, ext, _ := strings.Cut(entry.Name(), ".")
		n, err := strconv.Atoi(name)
		if err != nil || n <= 0 || ext != metaExt {
			continue
		}
		s.last = max(s.last, n)
		e, err := s.read(n)
		if err != nil {
			s.log.Warn("a change of a file cannot be taken back: what is kept of it is damaged", zap.String("path", entry.Name()), zap.Error(err))
			continue
		}
		s.entries, s.total = append(s.entries, e), s.total+e.bytes
	}
	slices.SortFunc(s.entries, func(a, b *Entry) int { return cmp.Compare(a.number, b.number) })
}

func (s *Store) read(number int) (*Entry, error) {
	e := &Entry{number: number}
	data, err := safefile.Read(s.meta(e), maxMeta)
	if err == nil {
		err = json.Unmarshal(data, e)
	}
	if err == nil && (!filepath.IsAbs(e.Path) || e.From != "" && !filepath.IsAbs(e.From)) {
		err = errors.New("a path is not absolute")
	}
	if err != nil {
		return nil, err
	}
	if info, err := os.Lstat(s.blob(e)); err == nil && info.Mode().IsRegular() {
		e.bytes = info.Size()
	}
	return e, nil
}

const (
	metaExt = "json"
	blobExt = "was"
)

func (s *Store) meta(e *Entry) string { return s.file(e, metaExt) }
func (s *Store) blob(e *Entry) string { return s.file(e, blobExt) }

func (s *Store) file(e *Entry, ext string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%08d.%s", e.number, ext))
}

// bare is an error without the path in the home.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
