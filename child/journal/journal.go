package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

const (
	flushSize  = 4 << 10               // bytes of partial text that are written at once
	flushDelay = 20 * time.Millisecond // from a write until partial text is written again
	maxBacklog = 16 << 20              // bytes that could not be written, beyond which the conversation alone is kept
	chunkSize  = 1 << 20               // bytes that are written before all of one Append are encoded
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
	opened *syscall.Stat_t // of the open file, which path is to name
	name   string          // "" of an unnamed session
	noSync bool
	// syncFile is Options.Sync.
	syncFile func(*os.File) error
	torn     int64 // bytes cut off by Open
	// created says that the file was empty or missing before Open.
	created bool

	mu      sync.Mutex // guards all below
	locked  *os.File
	file    file // locked, but in tests
	writer  transcript.Writer
	size    int64     // bytes of the file that are whole records
	fresh   bool      // the file is new, so that its directory is not synced yet
	backlog []byte    // encoded records that are not in the file yet
	written time.Time // when the file was last written to
	broken  error     // the file could not be put right after a failed write
	closed  bool

	turnID   string // of the pieces below
	text     []byte
	thinking []byte
	// timer writes the pieces; nil until there were some. It is stopped by Close alone, so that
	// turns which follow each other closely share one.
	timer    *time.Timer
	armed    bool           // the timer will run flushLate
	flushing sync.WaitGroup // flushLate, once armed
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
func (j *Journal) Torn() int64 {
	if j == nil {
		return 0
	}
	return j.torn
}

// Append writes the records, after all that could not be written before. If it fails, the
// records are kept and go before what comes next: the conversation in memory has them, and
// must be that of the file once that can be written. Records of other things are refused when
// 16 MiB wait. What waits is bounded by the caller, who begins nothing that is to be saved unless
// Writable is nil.
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
	full := false
	for _, r := range records {
		if err := j.encode(r); err != nil {
			return fmt.Errorf("save session: %w", err)
		}
		if len(j.backlog) >= chunkSize && !full {
			full = j.write() != nil // the last write says why
		}
	}
	return j.write()
}

// AppendLater leaves a record to the next Append, which is to follow at once: they are
// written together. The error says that it cannot be encoded.
func (j *Journal) AppendLater(r transcript.Record) error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if whole(r) {
		j.dropPieces()
	}
	j.encodePieces()
	if err := j.encode(r); err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	return nil
}

// Commit writes the records, after all that could not be written before, and
// returns once they are on the disk. If it fails the file is as if it had never
// been called: what is refused now must not come true after a restart.
func (j *Journal) Commit(records ...transcript.Record) (err error) {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.encodePieces()
	if err := j.write(); err != nil {
		return err
	}
	before, writer := j.size, j.writer.Clone()
	defer func() {
		if err != nil {
			j.writer = writer
		}
	}()
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
	err = j.sync()
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
	case transcript.TurnEnd, transcript.Reset, transcript.Undo:
		return true
	default:
		return false
	}
}

// inConversation reports whether r is a part of the conversation, where a file that lacks
// one, and has what follows, is damaged.
func inConversation(r transcript.Record) bool {
	switch r.(type) {
	case transcript.Message, transcript.TurnEnd, transcript.Compaction, transcript.Reset, transcript.Undo:
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
	case !j.armed:
		j.arm(wait)
	}
}

// arm has flushLate run after wait. j.mu is held.
func (j *Journal) arm(wait time.Duration) {
	j.armed = true
	j.flushing.Add(1)
	if j.timer == nil {
		j.timer = time.AfterFunc(wait, j.flushLate)
	} else {
		j.timer.Reset(wait)
	}
}

// flushLate runs on the timer's goroutine.
func (j *Journal) flushLate() {
	defer j.flushing.Done()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.armed = false
	if j.closed || len(j.text)+len(j.thinking)+len(j.backlog) == 0 {
		return
	}
	if wait := flushDelay - time.Since(j.written); wait > 0 { // something was written meanwhile
		j.arm(wait)
		return
	}
	j.encodePieces()
	_ = j.write() // kept in the backlog; Append reports it
}

func (j *Journal) dropPieces() { j.text, j.thinking = j.text[:0], j.thinking[:0] }

// encodePieces moves the pieces to the backlog.
func (j *Journal) encodePieces() {
	if len(j.text)+len(j.thinking) > 0 {
		// It cannot fail: turns hand over valid UTF-8.
		_ = j.encode(transcript.Partial{TurnID: j.turnID, Text: string(j.text), Thinking: string(j.thinking)})
	}
	j.dropPieces()
}

func (j *Journal) encode(r transcript.Record) error {
	if len(j.backlog) > maxBacklog && !inConversation(r) {
		return fmt.Errorf("%d bytes wait to be written", len(j.backlog))
	}
	line, err := j.writer.Append(j.backlog, r)
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
	var there syscall.Stat_t // os.Lstat makes garbage, and this is done twice in a turn
	err := syscall.Lstat(j.path, &there)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Lstat(j.path, &there)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("save session: %w: there is no %s any more", ErrRemoved, j.path)
	case err != nil:
		return fmt.Errorf("sync session: lstat %s: %w", j.path, err)
	case there.Dev != j.opened.Dev || there.Ino != j.opened.Ino:
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
		if j.armed && j.timer.Stop() {
			j.armed = false
			j.flushing.Done()
		}
		err = errors.Join(err, safefile.Release(j.locked))
	}
	j.mu.Unlock()
	j.flushing.Wait()
	return err
}
