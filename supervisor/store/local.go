package store

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/eventlog"
	"nexus.internal/supervisor/store/internal/requests"
)

// The parts of what is kept of an agent, by what follows its name.
const (
	requestsPart = ".outcomes"
	eventsPart   = ".events" // a directory
	accountPart  = ".usage"
	sessionPart  = ".jsonl" // which the agent writes
)

// parts are those that are ours.
var parts = []string{accountPart, requestsPart, eventsPart}

const (
	aside = ".damaged" // what is not what it should be has its name and this
	next  = ".new"     // what safefile replaces a file by, as a kill leaves it
	// maxAccount bounds an account's file, in bytes: several times what one can have.
	maxAccount = 64 << 10
	// snapshotTries is how often a session is looked at again as its requests grow.
	snapshotTries = 100
)

// Options are what a Local is made of.
type Options struct {
	// Path names the file of a part of what is kept of an agent; the part is what the
	// file's name ends with. That of ".jsonl" is the agent's session.
	Path func(agent, part string) string
	// Dirs are all directories that Path names files in.
	Dirs []string
	// NoSync leaves it to the system when an account reaches the disk.
	NoSync bool
	// Log may be nil: nothing is logged then.
	Log *zap.Logger
}

// Local is a [Store] in files beside the agents' sessions.
type Local struct {
	o Options

	mu     sync.Mutex       // guards events
	events *eventlog.Writer // nil before the first Open
}

type (
	eventLog   = eventlog.Log
	requestLog = requests.Log
)

var _ Store = (*Local)(nil)

// NewLocal returns the store of those files. It touches none. Close ends it.
func NewLocal(o Options) *Local {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Local{o: o}
}

// Close implements [Store]. It joins the goroutine that writes events.
func (l *Local) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events != nil {
		l.events.Close()
	}
}

func (l *Local) writer() *eventlog.Writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events == nil {
		l.events = eventlog.New(eventlog.Options{Log: l.o.Log})
	}
	return l.events
}

// Open implements [Store]. What stands in the place of a file or directory of ours
// and is none is renamed: NAME.damaged.
func (l *Local) Open(agent string, anew bool) (supervisor.Records, error) {
	if anew {
		if err := l.remove(agent, requestsPart, eventsPart); err != nil {
			return nil, fmt.Errorf("remove what another agent %s left: %w", agent, err)
		}
	}
	log := l.o.Log.With(zap.String("agent", agent))
	for _, part := range []string{requestsPart, eventsPart} {
		if err := setAside(l.o.Path(agent, part), part == requestsPart, log); err != nil {
			return nil, err
		}
	}
	asked, err := requests.Open(l.o.Path(agent, requestsPart), requests.Options{Session: l.o.Path(agent, sessionPart), Log: log})
	if err != nil {
		return nil, err
	}
	events, err := l.writer().Open(l.o.Path(agent, eventsPart))
	if err != nil {
		return nil, errors.Join(err, asked.Close())
	}
	return records{asked, events}, nil
}

// setAside renames what is no regular file of a possible size, or no directory, in
// the place of one, over what was renamed before.
func setAside(path string, regular bool, log *zap.Logger) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (regular && info.Mode().IsRegular() && info.Size() <= requests.MaxFile || !regular && info.IsDir()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for what the agent remembers: %w", err)
	}
	log.Warn("set aside: not what it should be", zap.String("path", path), zap.String("to", path+aside))
	if err := errors.Join(os.RemoveAll(path+aside), os.Rename(path, path+aside)); err != nil {
		return fmt.Errorf("set aside what is in the way: %w", err)
	}
	return nil
}

// Outcome implements [Store].
func (l *Local) Outcome(agent, request string) (supervisor.Outcome, error) {
	return requests.Look(l.o.Path(agent, requestsPart), l.o.Path(agent, sessionPart), request)
}

// Events implements [Store].
func (l *Local) Events(agent string, after uint64) iter.Seq2[supervisor.Event, error] {
	return eventlog.Read(l.o.Path(agent, eventsPart), after)
}

// Account implements [Store].
func (l *Local) Account(agent string) (*Account, error) {
	data, err := l.readAccount(agent)
	if data == nil {
		return nil, err
	}
	a := &Account{}
	if err := strict.Unmarshal(data, a, strict.IgnoreUnknown); err != nil {
		return nil, &DamagedError{Agent: agent, Place: l.o.Path(agent, accountPart), Err: err}
	}
	return a, nil
}

// readAccount returns what an account's file has; nil if there is none.
func (l *Local) readAccount(agent string) ([]byte, error) {
	path := l.o.Path(agent, accountPart)
	data, err := safefile.Read(path, maxAccount)
	switch errno, ok := errors.AsType[syscall.Errno](err); {
	case err == nil:
		return data, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case ok && !errors.Is(errno, fs.ErrPermission):
		return nil, fmt.Errorf("read what agent %s used: %w", agent, err)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the place is told
	}
	return nil, &DamagedError{Agent: agent, Place: path, Err: err}
}

// SetAccount implements [Store].
func (l *Local) SetAccount(agent string, a *Account) error {
	if a == nil {
		if err := os.Remove(l.o.Path(agent, accountPart)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget what an earlier agent %s used: %w", agent, err)
		}
		return nil
	}
	data, err := json.Marshal(a)
	if err == nil {
		err = l.replaceAccount(agent, append(data, '\n'), !l.o.NoSync)
	}
	if err != nil {
		return fmt.Errorf("save what agent %s used: %w", agent, err)
	}
	return nil
}

func (l *Local) replaceAccount(agent string, data []byte, durable bool) error {
	path := l.o.Path(agent, accountPart)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return safefile.Replace(path, data, durable)
}

// Clone implements [Store].
func (l *Local) Clone(from, to string) error {
	if err := l.Delete(to); err != nil {
		return err
	}
	data, err := l.readAccount(from) // a copy without it might use more
	if data == nil {
		return err
	}
	return l.replaceAccount(to, data, true)
}

// Rename implements [Store].
func (l *Local) Rename(from, to string) error {
	errs := []error{os.MkdirAll(filepath.Dir(l.o.Path(to, accountPart)), 0o700)}
	for _, part := range parts {
		if err := os.Rename(l.o.Path(from, part), l.o.Path(to, part)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, agent := range []string{from, to} {
		if err := safefile.SyncDir(filepath.Dir(l.o.Path(agent, accountPart))); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Delete implements [Store].
func (l *Local) Delete(agent string) error { return l.remove(agent, parts...) }

func (l *Local) remove(agent string, parts ...string) error {
	var errs []error
	for _, part := range parts {
		path := l.o.Path(agent, part)
		errs = append(errs, os.RemoveAll(path), os.RemoveAll(path+next))
	}
	return errors.Join(errs...)
}

// Retain implements [Store].
func (l *Local) Retain(keep func(agent string) bool) error {
	var errs []error
	for _, dir := range l.o.Dirs {
		entries, err := os.ReadDir(dir)
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, entry := range entries {
			name := strings.TrimSuffix(strings.TrimSuffix(entry.Name(), aside), next)
			for _, part := range parts {
				if agent, ok := strings.CutSuffix(name, part); ok && !keep(agent) {
					errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// Snapshot names the files of what is kept of an agent to take, for a copy of the
// files of one moment; session takes that of the agent's session. Both are called again
// where the first try was not of one moment, take for the same paths. Agents may work
// meanwhile, but nobody renames or deletes this one. A file that is not there is none.
//
// The order keeps promises: events may lack what an outcome says, as after a kill; an
// outcome is written after the session has the turn, and a prompt is given to the
// child after its request is on record. So if no request is written while the
// session's size is taken, the session has what the outcomes say and no prompt that
// they do not know.
func (l *Local) Snapshot(agent string, take func(path string) (fs.FileInfo, error), session func() error) error {
	dir := l.o.Path(agent, eventsPart)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			if _, err := take(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	asked := l.o.Path(agent, requestsPart)
	for tries := 0; ; tries++ {
		was, err := take(asked)
		if err != nil {
			return err
		}
		if err := session(); err != nil {
			return err
		}
		if tries == snapshotTries || unchanged(asked, was) {
			break // at last, a prompt that the requests do not know may run twice, if it is sent again
		}
	}
	_, err = take(l.o.Path(agent, accountPart))
	return err
}

// unchanged reports whether the file at path is as it was; nil is none.
func unchanged(path string, was fs.FileInfo) bool {
	is, err := os.Lstat(path)
	if was == nil || err != nil {
		return was == nil && errors.Is(err, fs.ErrNotExist)
	}
	return os.SameFile(is, was) && is.Size() == was.Size()
}
