package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

const (
	flushSize  = 4 << 10               // bytes of partial text that are written at once
	flushDelay = 20 * time.Millisecond // from a write until partial text is written again
	maxBacklog = 16 << 20              // bytes that could not be written
)

// file is what a journal needs of an *os.File.
type file interface {
	Write(p []byte) (int, error)
	Truncate(size int64) error
	Sync() error
}

// Journal is one open session file.
type Journal struct {
	path   string
	name   string // "" of an unnamed session
	noSync bool
	// syncFile is Options.Sync.
	syncFile func(*os.File) error
	torn     int // bytes cut off by Open
	// created says that the file was empty or missing before Open.
	created bool

	mu      sync.Mutex // guards all below
	locked  *os.File
	file    file      // locked, but in tests
	size    int64     // bytes of the file that are whole records
	fresh   bool      // the file is new, so that its directory is not synced yet
	backlog []byte    // encoded records that are not in the file yet
	written time.Time // when the file was last written to
	broken  error     // the file could not be put right after a failed write
	closed  bool

	turnID   string // of the pieces below
	text     []byte
	thinking []byte
	timer    *time.Timer // writes the pieces; nil if there are none
	flushing sync.WaitGroup
}

// Path is the file's absolute path; "" for a nil Journal.
func (j *Journal) Path() string {
	if j == nil {
		return ""
	}
	return j.path
}

// Name is the session's name; "" for a nil Journal, and for a session that has no name
// but its id.
func (j *Journal) Name() string {
	if j == nil {
		return ""
	}
	return j.name
}

// Torn is how many bytes of an unfinished record Open cut off.
func (j *Journal) Torn() int {
	if j == nil {
		return 0
	}
	return j.torn
}

// Append writes the records in one write, after all that could not be written
// before. If it fails, the records are kept and go before what comes next;
// only when 16 MiB wait are they refused, which Writable tells beforehand.
func (j *Journal) Append(records ...transcript.Record) error {
	if j == nil || len(records) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range records {
		if whole(r) {
			j.dropPieces()
		}
	}
	j.encodePieces()
	for _, r := range records {
		if err := j.encode(r); err != nil {
			return fmt.Errorf("save session: %w", err)
		}
	}
	return j.write()
}

// Commit writes the records, after all that could not be written before, and
// returns once they are on the disk. If it fails the file is as if it had never
// been called: what is refused now must not come true after a restart.
func (j *Journal) Commit(records ...transcript.Record) error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.encodePieces()
	if err := j.write(); err != nil {
		return err
	}
	before := j.size
	for _, r := range records {
		if err := j.encode(r); err != nil {
			j.backlog = j.backlog[:0]
			return fmt.Errorf("save session: %w", err)
		}
	}
	if err := j.write(); err != nil {
		j.backlog = j.backlog[:0]
		return err
	}
	err := j.sync()
	if err != nil {
		if cut := j.file.Truncate(before); cut != nil {
			j.broken = fmt.Errorf("%w; and its file cannot be put right: %w", err, cut)
			return j.broken
		}
		j.size = before
	}
	return err
}

// Writable reports why nothing can be saved any more; nil if something can.
// ErrRemoved is one reason.
func (j *Journal) Writable() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.write(); err != nil {
		return err
	}
	return j.there()
}

// whole reports whether r replaces the pieces that came before it.
func whole(r transcript.Record) bool {
	switch r := r.(type) {
	case transcript.Message:
		return r.Message.Role == protocol.RoleAssistant
	case transcript.TurnEnd, transcript.Reset:
		return true
	default:
		return false
	}
}

// Partial adds a piece of an answer. It is in the file when Partial returns,
// unless something else was written less than 20 ms ago: then it waits until
// these are over or 4 KiB wait. So a reader who sees the piece afterwards, and
// 20 ms more, sees what is kept, and a flood of pieces costs 50 writes a second
// or one for 4 KiB. A failure is reported by the next Append.
func (j *Journal) Partial(turnID, text, thinking string) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.turnID = turnID
	j.text = append(j.text, text...)
	j.thinking = append(j.thinking, thinking...)
	wait := flushDelay - time.Since(j.written)
	switch {
	case wait <= 0 || len(j.text)+len(j.thinking) >= flushSize:
		j.encodePieces()
		_ = j.write() // kept in the backlog; Append reports it
	case j.timer == nil:
		j.flushing.Add(1)
		j.timer = time.AfterFunc(wait, j.flushLate)
	}
}

// flushLate runs on the timer's goroutine.
func (j *Journal) flushLate() {
	defer j.flushing.Done()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.timer = nil
	j.encodePieces()
	if len(j.backlog) > 0 {
		_ = j.write() // kept in the backlog; Append reports it
	}
}

func (j *Journal) stopTimer() {
	if j.timer != nil && j.timer.Stop() {
		j.flushing.Done()
	}
	j.timer = nil
}

func (j *Journal) dropPieces() {
	j.stopTimer()
	j.text, j.thinking = j.text[:0], j.thinking[:0]
}

// encodePieces moves the pieces to the backlog.
func (j *Journal) encodePieces() {
	if len(j.text)+len(j.thinking) > 0 {
		// It cannot fail: turns hand over valid UTF-8.
		_ = j.encode(transcript.Partial{TurnID: j.turnID, Text: string(j.text), Thinking: string(j.thinking)})
	}
	j.dropPieces()
}

func (j *Journal) encode(r transcript.Record) error {
	if len(j.backlog) > maxBacklog {
		return fmt.Errorf("%d bytes wait to be written", len(j.backlog))
	}
	line, err := transcript.Append(j.backlog, r)
	if err != nil {
		return err
	}
	j.backlog = append(line, '\n')
	return nil
}

// write puts the backlog into the file, all of it or none.
func (j *Journal) write() error {
	if j.closed {
		return errors.New("save session: the journal is closed")
	}
	if j.broken != nil {
		return j.broken
	}
	if len(j.backlog) == 0 {
		return nil
	}
	j.written = time.Now()
	if _, err := j.file.Write(j.backlog); err != nil {
		if cut := j.file.Truncate(j.size); cut != nil {
			j.broken = fmt.Errorf("save session: %w; and its file cannot be put right: %w", err, cut)
			return j.broken
		}
		return fmt.Errorf("save session: %w", err)
	}
	j.size += int64(len(j.backlog))
	if cap(j.backlog) > flushSize*16 {
		j.backlog = nil
	}
	j.backlog = j.backlog[:0]
	return nil
}

// Sync returns once all that was appended is on the disk itself, in the file
// that a later start will read: ErrRemoved says that there is none. With NoSync
// it only looks for the file.
func (j *Journal) Sync() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sync()
}

// sync does what Sync says. j.mu is held.
func (j *Journal) sync() error {
	if j.closed {
		return nil
	}
	err := j.there()
	if err != nil || j.noSync {
		return err
	}
	if f, ok := j.file.(*os.File); ok {
		err = j.syncFile(f)
	} else {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("sync session: %w", err)
	}
	if j.fresh {
		if err := safefile.SyncDir(filepath.Dir(j.path)); err != nil {
			return fmt.Errorf("sync session directory: %w", err)
		}
		j.fresh = false
	}
	return nil
}

// there reports whether the path still names the file. j.mu is held.
func (j *Journal) there() error {
	there, err := safefile.At(j.path, j.locked)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("save session: %w: there is no %s any more", ErrRemoved, j.path)
	case err != nil:
		return fmt.Errorf("sync session: %w", err)
	case !there:
		return fmt.Errorf("save session: %w: %s is another file now", ErrRemoved, j.path)
	}
	return nil
}

// Close writes what waits, gives the lock back and joins the timer.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	j.encodePieces()
	err := j.write()
	if !j.closed {
		j.closed = true
		err = errors.Join(err, safefile.Release(j.locked))
	}
	j.mu.Unlock()
	j.flushing.Wait()
	return err
}
