package requests

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
)

// Bounds of a file (SPEC §7).
const (
	maxOutcomes = 256
	maxText     = 64 << 10 // bytes of one text
	maxTexts    = 1 << 20  // bytes of all texts, when the file is written anew
	// A file is written anew when it has maxOutcomes more than it had then, or
	// this many bytes.
	maxGrowth = 4 << 20
	// maxBacklog is how many outcomes wait to be written; the oldest go.
	maxBacklog = 256
	// roomSize is what is kept free for the outcome of a prompt, beyond twice the
	// length of its own line: bytes.
	roomSize = 768
	// MaxFile is more than a file ever has, in bytes.
	MaxFile  = 64 << 20
	maxShort = 160 // bytes of each text of an error that is written there
)

// damaged is added to the name of a file for a copy of what could not be read.
const damaged = ".damaged"

// ErrInUse says that another process has the file open.
var ErrInUse = errors.New("the agent is in use by another server")

// Options are how a log is opened.
type Options struct {
	// Session is the file of the agent's session, for Find; "" for none.
	Session string
	Log     *zap.Logger // may be nil
}

// Log is the outcomes of one agent.
type Log struct {
	path    string
	session string
	log     *zap.Logger

	mu      sync.Mutex // guards what follows
	file    *os.File   // locked; nil once closed
	size    int64      // bytes of whole lines
	anew    int64      // size when it was opened or written anew
	ends    int        // outcomes in it since then
	rooms   map[string]room
	backlog [][]byte // lines of outcomes that are not in the file, without texts
	spoiled bool     // what follows size could not be cut off
	past    *state   // until Past
}

// Open opens the file at path or begins one, and takes its lock. Errors wrap
// ErrInUse, a *VersionError, or what the system says.
func Open(path string, o Options) (*Log, error) {
	l := &Log{path: path, session: o.Session, log: o.Log}
	if l.log == nil {
		l.log = zap.NewNop()
	}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open outcomes %s: %w", path, err)
	}
	return l, nil
}

func (l *Log) open() (err error) {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	for l.file == nil {
		if l.file, err = claim(l.path); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, safefile.Release(l.file))
		}
	}()
	data, err := safefile.ReadAll(l.file, MaxFile)
	if err != nil {
		return err
	}
	past, good, err := parse(data)
	if err != nil {
		return err
	}
	if good < len(data) {
		l.log.Warn("outcomes: a damaged end is cut off", zap.String("path", l.path), zap.Int("bytes", len(data)-good))
		if bytes.IndexByte(data[good:], '\n') >= 0 { // more than the line that the end of a server tore
			if err := safefile.Replace(l.path+damaged, data, false); err != nil {
				return err
			}
		}
		if err := l.file.Truncate(int64(good)); err != nil {
			return err
		}
	}
	l.past, l.rooms = past, past.rooms()
	l.size, l.anew = int64(good), int64(good)
	if good == 0 {
		_, err := l.write(appendLine(nil, header{Type: "outcomes", Version: Version}))
		return err
	}
	if len(past.done) > maxOutcomes {
		past.done = past.done[len(past.done)-maxOutcomes:]
		l.renew()
	}
	return nil
}

// claim opens and locks a file; nil if it is not the one at its path any more.
func claim(path string) (*os.File, error) {
	file, err := safefile.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	there := false
	if err = safefile.Lock(file); err == nil {
		there, err = safefile.At(path, file)
	}
	switch {
	case err == nil && there:
		return file, nil
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil, safefile.Release(file)
	case errors.Is(err, safefile.ErrLocked):
		err = ErrInUse
	}
	return nil, errors.Join(err, file.Close())
}

// Past tells what was recorded before the log was opened: first the last
// outcomes, oldest first, then the prompts that have none, for which ended is
// nil, in the order they were accepted. It does so once.
func (l *Log) Past(yield func(id string, digest [sha256.Size]byte, ended *supervisor.Result)) {
	l.mu.Lock()
	past := l.past
	l.past = nil
	l.mu.Unlock()
	if past == nil {
		return
	}
	for _, e := range past.done {
		yield(e.id, e.digest, e.end.result())
	}
	for _, e := range past.waiting() {
		yield(e.id, e.digest, nil)
	}
}

// Accept records a prompt. After an error it is not recorded, and not to be
// accepted.
func (l *Log) Accept(id string, digest [sha256.Size]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, free := appendAccepted(nil, id, digest)
	at, err := l.write(line)
	if err != nil {
		return fmt.Errorf("record the request: %w", err)
	}
	free.at += at
	l.rooms[id] = free
	return nil
}

// End records the outcome of r.TurnID. Where the disk takes no more it is
// written in the room that Accept kept free for it, without its text. One that
// cannot be written there either is logged and written later. After Close it is
// not recorded.
func (l *Log) End(r supervisor.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		l.log.Warn("outcome not recorded: the log is closed", zap.String("request_id", r.TurnID))
		return
	}
	record := endedOf(r)
	if _, err := l.write(appendLine(nil, record)); err != nil {
		record = record.short()
		if squeezed := l.squeeze(record); squeezed != nil {
			l.log.Warn("outcome not recorded yet", zap.String("request_id", r.TurnID), zap.Errors("errors", []error{err, squeezed}))
			if len(l.backlog) == maxBacklog {
				l.backlog = slices.Delete(l.backlog, 0, 1)
			}
			l.backlog = append(l.backlog, appendLine(nil, record))
			return
		}
		l.log.Warn("outcome recorded without its text", zap.String("request_id", r.TurnID), zap.Error(err))
	}
	delete(l.rooms, r.TurnID)
	l.ends++
	if l.ends >= maxOutcomes || l.size > l.anew+maxGrowth {
		l.renew()
	}
}

// squeeze writes an outcome in the room of its prompt. What was said of it before
// stays until the last byte is written, the first one of the line.
func (l *Log) squeeze(e ended) error {
	free, ok := l.rooms[e.RequestID]
	line := appendLine(nil, e)
	if !ok || len(line) > free.size {
		return errors.New("no room was kept for it")
	}
	line = slices.Concat(line[:len(line)-1], bytes.Repeat([]byte(" "), free.size-len(line)), []byte("\n"))
	if _, err := l.file.WriteAt(line[1:], free.at+1); err != nil {
		return err
	}
	_, err := l.file.WriteAt(line[:1], free.at)
	return err
}

// write adds lines after those that wait, all or none, and tells where they are.
func (l *Log) write(lines []byte) (at int64, err error) {
	if l.file == nil {
		return 0, fs.ErrClosed
	}
	if l.spoiled {
		if err := l.file.Truncate(l.size); err != nil {
			return 0, err
		}
		l.spoiled = false
	}
	waited := slices.Concat(l.backlog...)
	all := append(waited, lines...)
	if _, err := l.file.WriteAt(all, l.size); err != nil {
		l.spoiled = l.file.Truncate(l.size) != nil
		return 0, err
	}
	at = l.size + int64(len(waited))
	l.size += int64(len(all))
	l.ends += len(l.backlog)
	l.backlog = nil
	return at, nil
}

// renew writes the file anew with what is still remembered. If it cannot, the
// old one is kept, and it is tried again later.
func (l *Log) renew() {
	l.ends = 0
	size, rooms, file, err := l.rewrite()
	if err != nil {
		l.anew = l.size
		l.log.Warn("outcomes not written anew", zap.String("path", l.path), zap.Error(err))
		return
	}
	_ = safefile.Release(l.file) // the old one has nothing left to say
	l.file, l.size, l.anew, l.rooms = file, size, size, rooms
}

func (l *Log) rewrite() (size int64, rooms map[string]room, _ *os.File, err error) {
	data := make([]byte, l.size)
	if _, err := l.file.ReadAt(data, 0); err != nil {
		return 0, nil, nil, err
	}
	s, _, err := parse(data)
	if err != nil {
		return 0, nil, nil, err
	}
	data, rooms = s.encode()
	file, err := safefile.Renew(l.path, func(file *os.File) error {
		err := safefile.Lock(file) // before anybody can open it by its name
		if err == nil {
			_, err = file.Write(data)
		}
		if err == nil {
			err = file.Sync()
		}
		return err
	})
	return int64(len(data)), rooms, file, err
}

// encode is the file of what is remembered of s, and the rooms in it.
func (s *state) encode() ([]byte, map[string]room) {
	done := s.done[max(0, len(s.done)-maxOutcomes):]
	texts := 0
	for _, e := range slices.Backward(done) {
		if texts += len(e.end.Text); texts > maxTexts {
			e.end.Text, e.end.Truncated = "", e.end.Truncated || e.end.Text != ""
		}
	}
	data := appendLine(nil, header{Type: "outcomes", Version: Version})
	for _, e := range done {
		data = appendLine(data, acceptedOf(e.id, e.digest))
		data = appendLine(data, *e.end)
	}
	rooms := map[string]room{}
	for _, e := range s.waiting() {
		data, rooms[e.id] = appendAccepted(data, e.id, e.digest)
	}
	return data, rooms
}

// Close writes what waits and gives the lock back. The error is that of the
// disk. It is idempotent.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	var err error
	if len(l.backlog) > 0 {
		if _, err = l.write(nil); err != nil {
			err = fmt.Errorf("close outcomes: %d not recorded: %w", len(l.backlog), err)
		}
	}
	err = errors.Join(err, safefile.Release(l.file))
	l.file, l.past = nil, nil
	return err
}

// Remove closes the log and takes its file away.
func (l *Log) Remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, path := range []string{l.path, l.path + ".new", l.path + damaged} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove outcomes: %w", err))
		}
	}
	if l.file != nil { // the lock goes last
		errs = append(errs, safefile.Release(l.file))
	}
	l.file, l.past, l.backlog = nil, nil, nil
	return errors.Join(errs...)
}
