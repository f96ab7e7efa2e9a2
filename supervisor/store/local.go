package store

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/segmentlog"
)

// What follows an agent's name in what is kept of it.
const (
	recordsPart = ".records" // the log, a directory
	sessionPart = ".jsonl"   // which the agent writes

	aside = ".damaged" // what is not what it should be has its name and this
	next  = ".new"     // what is being made, or removed
)

// parts are those that are ours.
var parts = append([]string{recordsPart}, earlierParts...)

// snapshotTries is how often a session is looked at again as its records grow.
const snapshotTries = 100

// Layout is where the files of agents are.
type Layout struct {
	Named string // the directory of those of agents with names
	Temp  string // and of temporary agents, whose names begin with a dot
}

// Dir is the directory of what is kept of an agent. It may not exist yet.
func (l Layout) Dir(agent string) string {
	if strings.HasPrefix(agent, ".") {
		return l.Temp
	}
	return l.Named
}

// Path is the file of a part of what is kept of an agent; the part is what the file's name
// ends with. That of ".jsonl" is the agent's session.
func (l Layout) Path(agent, part string) string { return filepath.Join(l.Dir(agent), agent+part) }

// Options are what a Local is made of.
type Options struct {
	Layout
	// NoSync leaves it to the system when an account reaches the disk.
	NoSync bool
	// Log may be nil: nothing is logged then.
	Log *zap.Logger
}

// Local is a [Store] in files beside the agents' sessions: one log of each agent.
type Local struct {
	o      Options
	writer *segmentlog.Writer

	mu     sync.Mutex        // guards agents
	agents map[string]*agent // those that are open, or that a method works on
}

// agent is the log of one agent. Local.mu guards users.
type agent struct {
	users int // goroutines that have or await mu, and one if log is open

	mu  sync.Mutex // held while what is kept of the agent is opened or changed
	log *segmentlog.Log
}

var _ Store = (*Local)(nil)

// NewLocal returns the store of those files. It touches none. Close ends it.
func NewLocal(o Options) *Local {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Local{o: o, writer: segmentlog.New(segmentlog.Options{Log: o.Log}), agents: map[string]*agent{}}
}

// Close implements [Store]. It joins the goroutine that writes events.
func (l *Local) Close() { l.writer.Close() }

func (l *Local) path(agent string) string { return l.o.Path(agent, recordsPart) }

// hold keeps others from what is kept of an agent until release is called.
func (l *Local) hold(name string) (a *agent, release func()) {
	l.mu.Lock()
	a = l.agents[name]
	if a == nil {
		a = &agent{}
		l.agents[name] = a
	}
	a.users++
	l.mu.Unlock()
	a.mu.Lock()
	return a, func() {
		a.mu.Unlock()
		l.leave(name, a)
	}
}

func (l *Local) leave(name string, a *agent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(l.agents, name)
	}
}

func (l *Local) Open(agent string, fresh bool) (supervisor.Records, error) {
	a, release := l.hold(agent)
	defer release()
	if a.log != nil {
		return nil, ErrInUse
	}
	if fresh {
		if err := l.remove(agent, earlierOutcomes, earlierEvents); err != nil {
			return nil, fmt.Errorf("remove what another agent %s left: %w", agent, err)
		}
	}
	log, lines, err := l.open(agent)
	if err != nil {
		return nil, err
	}
	if fresh && (log.Last() > 0 || len(lines) > 0) {
		lines = nil
		if err := log.Reset(); err != nil {
			return nil, errors.Join(err, log.Close())
		}
	}
	log.Begin()
	a.log = log
	l.mu.Lock()
	a.users++
	l.mu.Unlock()
	r := newRecords(log, lines)
	r.local, r.agent, r.held = l, agent, a
	r.session, r.log = l.o.Path(agent, sessionPart), l.o.Log.With(zap.String("agent", agent))
	return r, nil
}

// end closes records by that, once.
func (r *records) end(by func() error) error {
	a := r.held
	a.mu.Lock() // who sets the account finds the log open, or closed
	defer a.mu.Unlock()
	if a.log != r.Log {
		return nil
	}
	a.log = nil
	defer r.local.leave(r.agent, a) // once others may open it
	return by()
}

// open opens the log of an agent that is held, or makes it.
func (l *Local) open(agent string) (*segmentlog.Log, [][]byte, error) {
	if err := safefile.Mkdir(filepath.Dir(l.path(agent))); err != nil {
		return nil, nil, err
	}
	if err := l.migrate(agent); err != nil {
		return nil, nil, err
	}
	log, lines, err := l.writer.Open(l.path(agent), snapshot)
	return log, lines, damagedOr(agent, err)
}

// damagedOr is err, or the *DamagedError that it is.
func damagedOr(agent string, err error) error {
	if e, ok := errors.AsType[*segmentlog.DamageError](err); ok {
		return &DamagedError{Agent: agent, Place: e.Path, Err: e.Err}
	}
	return err
}

// setAside renames what is in the place of a directory, or of a regular file, and is none, over
// what was renamed before.
func setAside(path string, dir bool, log *zap.Logger) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (dir && info.IsDir() || !dir && info.Mode().IsRegular()) {
		return nil
	}
	if err != nil {
		return err
	}
	log.Warn("set aside: not what it should be", zap.String("path", path), zap.String("to", path+aside))
	return errors.Join(os.RemoveAll(path+aside), os.Rename(path, path+aside))
}

func (l *Local) Outcome(agent, request string) (supervisor.Outcome, error) {
	lines, err := segmentlog.Lines(l.path(agent))
	q := requestsIn(lines)
	if errors.Is(err, fs.ErrNotExist) {
		q, _, err = l.earlierRequests(agent)
	}
	if err != nil {
		return "", fmt.Errorf("look for an outcome: %w", damagedOr(agent, err))
	}
	done, waiting := q.sorted()
	for _, r := range waiting {
		if r.id == request {
			found, err := findIn(l.o.Path(agent, sessionPart), request)
			if r, ok := found[request]; ok || err != nil {
				return r.Outcome, err
			}
			return supervisor.Crashed, nil
		}
	}
	for _, r := range slices.Backward(done) {
		if r.id == request {
			return r.end.Outcome, nil
		}
	}
	return "", nil
}

func (l *Local) Events(agent string, after uint64) iter.Seq2[supervisor.Event, error] {
	return func(yield func(supervisor.Event, error) bool) {
		segments, err := segmentlog.Segments(l.path(agent))
		if errors.Is(err, fs.ErrNotExist) {
			segments, _, err = l.earlierSegments(agent)
		}
		if err != nil {
			yield(supervisor.Event{}, fmt.Errorf("read events: %w", damagedOr(agent, err)))
			return
		}
		segmentlog.ReadSegments(segments, after)(yield)
	}
}

func (l *Local) Account(agent string) (*Account, error) {
	a, release := l.hold(agent)
	defer release()
	if a.log != nil {
		return decodeAccount(agent, l.path(agent), a.log.Account())
	}
	data, err := segmentlog.Account(l.path(agent))
	if errors.Is(err, fs.ErrNotExist) {
		return l.earlierAccount(agent)
	}
	if err != nil {
		return nil, unreadable(agent, l.path(agent), err)
	}
	return decodeAccount(agent, l.path(agent), data)
}

// decodeAccount decodes an account; nil is none.
func decodeAccount(agent, place string, data []byte) (*Account, error) {
	if data == nil {
		return nil, nil
	}
	a := &Account{}
	if err := strict.Unmarshal(data, a, strict.IgnoreUnknown); err != nil {
		return nil, &DamagedError{Agent: agent, Place: place, Err: err}
	}
	return a, nil
}

// unreadable is what it means for the account that its place cannot be read: nothing if there is
// none, a *DamagedError unless it may pass.
func unreadable(agent, place string, err error) error {
	err = damagedOr(agent, err)
	_, damaged := errors.AsType[*DamagedError](err)
	_, later := errors.AsType[*segmentlog.VersionError](err)
	errno, system := errors.AsType[syscall.Errno](err)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case damaged:
		return err
	case later, system && !errors.Is(errno, fs.ErrPermission):
		return fmt.Errorf("read what agent %s used: %w", agent, err)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the place is told
	}
	return &DamagedError{Agent: agent, Place: place, Err: err}
}

// SetAccount implements [Store]. To remove one that is damaged, all that is kept of the agent
// is renamed: NAME.records.damaged.
func (l *Local) SetAccount(agent string, a *Account) error {
	err := l.setAccount(agent, a, !l.o.NoSync)
	if err != nil {
		return fmt.Errorf("save what agent %s used: %w", agent, err)
	}
	return nil
}

func (l *Local) setAccount(agent string, account *Account, durable bool) (err error) {
	var data []byte
	if account != nil {
		if data, err = json.Marshal(account); err != nil {
			return err
		}
	}
	a, release := l.hold(agent)
	defer release()
	if a.log != nil {
		return a.log.SetAccount(data, durable)
	}
	if data == nil {
		if err := l.remove(agent, earlierAccount); err != nil || !there(l.path(agent)) {
			return err
		}
	}
	if data != nil {
		if done, err := l.writer.SetAccount(l.path(agent), data, durable); done {
			return err
		}
	}
	log, _, err := l.open(agent)
	if _, damaged := errors.AsType[*DamagedError](err); damaged && data == nil {
		path := l.path(agent)
		l.o.Log.Warn("set aside: not what it should be", zap.Error(err), zap.String("to", path+aside))
		return errors.Join(os.RemoveAll(path+aside), os.Rename(path, path+aside))
	}
	if err != nil {
		return err
	}
	if data != nil || log.Account() != nil {
		err = log.SetAccount(data, durable)
	}
	return errors.Join(err, log.Close())
}

func (l *Local) Clone(from, to string) error {
	if err := l.Delete(to); err != nil {
		return err
	}
	a, err := l.Account(from) // a copy without it might use more
	if a == nil {
		return err
	}
	return l.setAccount(to, a, true)
}

func (l *Local) Rename(from, to string) error {
	_, release := l.hold(from)
	defer release()
	errs := []error{safefile.Mkdir(filepath.Dir(l.path(to)))}
	for _, part := range parts {
		if err := os.Rename(l.o.Path(from, part), l.o.Path(to, part)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, agent := range []string{from, to} {
		if err := safefile.SyncDir(filepath.Dir(l.path(agent))); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (l *Local) Delete(agent string) error {
	_, release := l.hold(agent)
	defer release()
	return errors.Join(segmentlog.Remove(l.path(agent)), l.remove(agent, earlierParts...))
}

// remove removes parts of the earlier layout.
func (l *Local) remove(agent string, parts ...string) error {
	var errs []error
	for _, part := range parts {
		path := l.o.Path(agent, part)
		errs = append(errs, os.RemoveAll(path), os.RemoveAll(path+next))
	}
	return errors.Join(errs...)
}

func (l *Local) Retain(keep func(agent string) bool) error {
	var errs []error
	for _, dir := range []string{l.o.Named, l.o.Temp} {
		entries, err := safefile.ReadDir(dir)
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
// where the first try was not of one moment, take for the same paths and perhaps others. Agents
// may work meanwhile, but nobody renames or deletes this one. A file that is not there is none.
//
// The order keeps promises: an outcome is written after the session has the turn, and a
// prompt is given to the child after its request is on record. So if nothing is written to
// the log while the session's size is taken, the session has what the outcomes say and no
// prompt that they do not know.
func (l *Local) Snapshot(agent string, take func(path string) (fs.FileInfo, error), session func() error) error {
	for tries := 0; ; tries++ {
		paths, err := l.files(agent)
		if err != nil {
			return err
		}
		var end fs.FileInfo
		for _, path := range paths {
			if end, err = take(path); err != nil {
				return err
			}
		}
		if err := session(); err != nil {
			return err
		}
		again, err := l.files(agent)
		if err != nil {
			return err
		}
		same := slices.Equal(paths, again) && (len(paths) == 0 || unchanged(paths[len(paths)-1], end))
		if same || tries == snapshotTries {
			return nil // at last, a prompt that the requests do not know may run twice, if it is sent again
		}
	}
}

// Size is how many bytes the files of what is kept of an agent have, which are not read. Links are not followed.
func (l *Local) Size(agent string) (size int64, err error) {
	for _, part := range parts {
		more, err := safefile.Size(l.o.Path(agent, part))
		if err != nil {
			return 0, err
		}
		size += more
	}
	return size, nil
}

// files are those of what is kept of an agent, the one that requests are written to at last.
func (l *Local) files(agent string) (paths []string, err error) {
	segments, err := segmentlog.Segments(l.path(agent))
	earlier := errors.Is(err, fs.ErrNotExist)
	if earlier {
		segments, _, err = l.earlierSegments(agent)
	}
	for _, s := range segments {
		paths = append(paths, s.Path)
	}
	if earlier {
		paths = append(paths, l.o.Path(agent, earlierAccount), l.o.Path(agent, earlierOutcomes))
	}
	return paths, err
}

// unchanged reports whether the file at path is as it was; nil is none.
func unchanged(path string, was fs.FileInfo) bool {
	is, err := os.Lstat(path)
	if was == nil || err != nil {
		return was == nil && errors.Is(err, fs.ErrNotExist)
	}
	return os.SameFile(is, was) && is.Size() == was.Size()
}
