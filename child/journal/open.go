package journal

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

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// ErrUnknown says that no saved session has the name or id asked for.
var ErrUnknown = errors.New("no such session")

// ErrInUse says that another process holds the session.
var ErrInUse = errors.New("the session is in use by another process")

// ErrForbidden says that there is a file which this process may not open.
var ErrForbidden = errors.New("it may not be opened")

// Unreadable reports whether Open failed because of what stands where the session
// does, which is then as it was.
func Unreadable(err error) bool {
	_, damaged := errors.AsType[*transcript.LineError](err)
	_, other := errors.AsType[notRegularError](err)
	return damaged || other || errors.Is(err, ErrForbidden)
}

// notRegularError is [safefile.ErrNotRegular] of the session, not of another file.
type notRegularError struct{ error }

func (e notRegularError) Unwrap() error { return e.error }

// ErrRemoved says that the session's file was removed, moved away or replaced
// while the journal was open. It is over once the file is back.
var ErrRemoved = errors.New("the session's file was removed")

const suffix = ".jsonl"

// Options says which session to open and how.
type Options struct {
	// Dir holds the files; it is created (0700) if a session is begun.
	Dir string
	// Name begins the session of that name, or goes on with it if there is one.
	// "" begins an unnamed session, whose file is called by its id.
	Name string
	// Continue goes on with the session of that name or session id; ErrUnknown
	// if there is none. It excludes Name.
	Continue string
	// NoSync leaves the file to the operating system: it survives the end of
	// every process, not that of the machine.
	NoSync bool
	// Sync puts what was written to the file on the disk; nil means fdatasync.
	Sync func(f *os.File) error
}

// CheckName reports whether name can name a session: up to 63 letters, digits,
// dots, dashes and underscores, of which the first is a letter or digit, after
// a dot perhaps; no two dots in a row (SPEC §4.6).
func CheckName(name string) error {
	rest := strings.TrimPrefix(name, ".")
	sound := rest != "" && len(rest) <= 63 && !strings.ContainsAny(rest[:1], "._-") && !strings.Contains(name, "..")
	for _, c := range []byte(rest) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		sound = sound && (letter || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if !sound {
		return fmt.Errorf("%q is no session name: want letters, digits, dots, dashes and underscores, at most 63", name)
	}
	return nil
}

// NewSessionID makes an id that no other session has.
func NewSessionID() string { return uuid.NewString() }

// Open opens or begins a session, takes its lock, cuts off a torn tail, closes
// a turn that was cut off, and returns what was saved. Errors wrap ErrUnknown,
// ErrInUse, safefile.ErrNotRegular, ErrForbidden or *transcript.LineError (in it, perhaps, a
// *transcript.VersionError); on every error the file is as it was, and one that was begun or empty is gone.
func Open(o Options) (*Journal, *transcript.State, error) {
	if o.Sync == nil {
		o.Sync = SyncData
	}
	id := NewSessionID()
	name := o.Name
	if name == "" {
		name = id
	}
	flags := os.O_RDWR | os.O_APPEND | os.O_CREATE
	if o.Continue != "" {
		found, err := find(o.Dir, o.Continue)
		if err != nil {
			return nil, nil, fmt.Errorf("continue %q: %w", o.Continue, err)
		}
		name = found
		flags &^= os.O_CREATE
	} else if err := CheckName(name); err != nil {
		return nil, nil, err
	} else if err := safefile.Mkdir(o.Dir); err != nil {
		return nil, nil, fmt.Errorf("create session directory: %w", err)
	}
	path, err := filepath.Abs(filepath.Join(o.Dir, name+suffix))
	if err != nil {
		return nil, nil, fmt.Errorf("open session: %w", err)
	}
	f, err := safefile.Open(path, flags)
	if errors.Is(err, fs.ErrPermission) {
		if _, gone := os.Lstat(path); gone == nil {
			err = fmt.Errorf("%w: %w", ErrForbidden, err)
		}
	}
	if errors.Is(err, safefile.ErrNotRegular) {
		err = notRegularError{err}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open session: %w", err)
	}
	about, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open session: %w", err), f.Close())
	}
	opened, ok := about.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, nil, errors.Join(errors.New("open session: the system does not say which file it is"), f.Close())
	}
	j := &Journal{path: path, opened: opened, name: name, locked: f, file: f, noSync: o.NoSync, syncFile: o.Sync}
	now := time.Now()
	state, err := j.begin(transcript.Header{Version: transcript.Version, SessionID: id, Name: name, CreatedAt: now.UTC()}, now)
	if err != nil {
		if j.created { // while it is locked: nobody else has it open
			os.Remove(path)
		}
		safefile.Release(f)
		return nil, nil, fmt.Errorf("open session %s: %w", path, err)
	}
	if state.Header.SessionID == name {
		j.name = ""
	}
	return j, state, nil
}

// begin locks the file and brings it into a sound state.
func (j *Journal) begin(header transcript.Header, now time.Time) (*transcript.State, error) {
	if err := safefile.Lock(j.locked); errors.Is(err, safefile.ErrLocked) {
		return nil, ErrInUse
	} else if err != nil {
		return nil, err
	}
	if err := j.there(); err != nil { // Expire may have removed it before it was locked
		return nil, err
	}
	state, good, err := transcript.Parse(j.locked)
	if err != nil {
		return nil, err
	}
	size, err := j.locked.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if good < size {
		if err := j.file.Truncate(good); err != nil {
			return nil, fmt.Errorf("cut off the torn tail: %w", err)
		}
		j.torn = size - good
	}
	j.size = good
	if good > 0 {
		var last [1]byte
		if _, err := j.locked.ReadAt(last[:], good-1); err != nil {
			return nil, err
		}
		if last[0] != '\n' {
			j.backlog = append(j.backlog, '\n')
		}
	}
	j.writer = state.Writer()
	var records []transcript.Record
	if state.Empty() {
		if err := state.Apply(header); err != nil {
			return nil, err
		}
		records = append(records, header)
	}
	records = append(records, state.Repair(now)...)
	j.fresh, j.created = size == 0, size == 0
	return state, j.Append(records...)
}

// Discard closes the journal and removes its file if Open created it: a start
// that came to nothing leaves nothing behind.
func (j *Journal) Discard() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	remove := j.created && !j.closed && j.there() == nil
	j.mu.Unlock()
	err := j.Close()
	if remove {
		err = errors.Join(err, os.Remove(j.path))
	}
	return err
}

// find gives the name of the session that somebody calls ref.
func find(dir, ref string) (string, error) {
	if CheckName(ref) == nil {
		if _, err := os.Lstat(filepath.Join(dir, ref+suffix)); err == nil {
			return ref, nil
		}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrUnknown
	}
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok || !entry.Type().IsRegular() {
			continue
		}
		if has(filepath.Join(dir, entry.Name()), ref) {
			return name, nil
		}
	}
	return "", ErrUnknown
}

// has reports whether the session at path has that id, or begins with it and is damaged: Open
// says what is wrong with it.
func has(path, id string) bool {
	f, err := safefile.Open(path, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer f.Close()
	if s, err := transcript.Summarize(f); err == nil {
		return s.SessionID == id
	}
	_, err = f.Seek(0, io.SeekStart)
	return err == nil && transcript.Unnamed(id, f)
}
