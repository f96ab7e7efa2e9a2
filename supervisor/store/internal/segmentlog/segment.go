package segmentlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

// Version is the version of the layout that this package writes, and the latest
// that it reads.
const Version = 1

const (
	headerSize = 192
	suffix     = ".jsonl"
	unfinished = ".new"     // of what is being made
	damaged    = ".damaged" // of what could not be read

	eventHead   = `{"seq":`
	eventMiddle = `,"event":`
	accountHead = `{"account":`

	// RoomSize bounds a line that WriteRoom takes, in bytes.
	RoomSize = 1 << 10
	// maxSegment is more than a segment ever has, and mostAccounts than most accounts, in bytes.
	maxSegment   = 64 << 20
	mostAccounts = 2 << 10
)

// ErrInUse says that another process, or another Log, has the log open.
var ErrInUse = errors.New("the agent is in use by another server")

// VersionError says that a later program wrote the log.
type VersionError struct{ Got uint32 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("records have layout version %d; this program reads up to %d", e.Got, Version)
}

// DamageError says that what the log keeps cannot be read.
type DamageError struct {
	Path string
	Err  error
}

func (e *DamageError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *DamageError) Unwrap() error { return e.Err }

// header is the first line of a segment. Its size is fixed, so that it can be written
// over in place, which needs no room on a full disk.
type header struct {
	Version  uint32 `json:"records"`
	Since    uint64 `json:"since"`    // number of the log's first segment; those below it are of an earlier log
	First    uint64 `json:"first"`    // no event in the segment has a lower number
	Snapshot int64  `json:"snapshot"` // where the snapshot ends: bytes
	Account  int64  `json:"account"`  // where the line of the account that holds begins; 0: there is none
	Reserved uint64 `json:"reserved"` // no event has a higher number, whether it was written or not
}

func (h header) encode() []byte {
	h.Version = Version
	line, err := json.Marshal(h)
	if err != nil {
		panic("segmentlog: encode: " + err.Error()) // it can be encoded
	}
	line = append(line[:len(line)-1], bytes.Repeat([]byte(" "), headerSize-len(line)-1)...)
	return append(line, "}\n"...)
}

// errUnsynced says that a segment is empty: it was never on the disk before the machine stopped.
var errUnsynced = fmt.Errorf("is empty: %w", fs.ErrNotExist)

// decode reads the header that data begins with.
func (h *header) decode(data []byte) error {
	data = data[:min(len(data), headerSize)]
	if len(bytes.TrimLeft(data, "\x00")) == 0 {
		return errUnsynced
	}
	if version := gjson.GetBytes(data, "records").Uint(); version > Version && strict.Valid(data) == nil {
		return &VersionError{Got: uint32(version)}
	}
	if err := strict.Unmarshal(data, h, strict.IgnoreUnknown); err != nil {
		return fmt.Errorf("its header: %w", err)
	}
	if len(data) < headerSize || data[headerSize-1] != '\n' || h.Version == 0 || h.Snapshot < headerSize || h.Account < 0 {
		return errors.New("its header is none")
	}
	return nil
}

// Segment is one file of a log.
type Segment struct {
	Path   string
	Number uint64
	First  uint64 // no event in it has a lower number
	From   int64  // no event stands before that: bytes
	Size   int64  // bytes of whole lines
}

// list finds the segments in dir, oldest first, with their path, number and size.
// The error wraps fs.ErrNotExist if there is no directory; a *DamageError says that there is
// something else, or no segment.
func list(dir string) (all []Segment, err error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &DamageError{dir, errors.New("is no directory")}
	}
	entries, err := safefile.ReadDir(dir) // by name
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		digits, ok := strings.CutSuffix(entry.Name(), suffix)
		number, err := strconv.ParseUint(digits, 10, 64)
		if !ok || len(digits) != 20 || err != nil {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Segment{Path: filepath.Join(dir, entry.Name()), Number: number, Size: info.Size()})
	}
	if len(all) == 0 {
		return nil, &DamageError{dir, errors.New("has no segment")}
	}
	return all, nil
}

// last opens the last segment in dir that reached the disk and reads its header. The
// caller closes it.
func last(dir string, flags int) (s Segment, h header, file *os.File, err error) {
	all, err := list(dir)
	for err == nil {
		s = all[len(all)-1]
		if file, h, err = s.open(flags); err == nil {
			return s, h, file, nil
		}
		if errors.Is(err, errUnsynced) && len(all) > 1 {
			all, err = all[:len(all)-1], nil
		} else if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errUnsynced) { // it was renamed or removed meanwhile
			all, err = list(dir)
		}
	}
	return s, h, nil, err
}

// segments are those of the log in dir, oldest first, at least one, and the header of the last
// one. One before it that cannot be read is left out.
func segments(dir string) (found []Segment, h header, err error) {
	end, h, file, err := last(dir, os.O_RDONLY)
	if err != nil {
		return nil, h, err
	}
	all, err := list(dir)
	for _, s := range all {
		if s.Number >= h.Since && s.Number < end.Number {
			if other, _, err := s.open(os.O_RDONLY); err == nil {
				found = append(found, s)
				other.Close()
			}
		}
	}
	return append(found, end), h, errors.Join(err, file.Close())
}

// open opens a segment and fills in what its header says.
func (s *Segment) open(flags int) (file *os.File, h header, err error) {
	file, err = safefile.Open(s.Path, flags)
	if errors.Is(err, safefile.ErrNotRegular) {
		return nil, h, &DamageError{s.Path, safefile.ErrNotRegular}
	}
	if err != nil {
		return nil, h, err
	}
	data := make([]byte, headerSize)
	n, err := file.ReadAt(data, 0)
	if err == nil || errors.Is(err, io.EOF) {
		err = h.decode(data[:n])
		if _, later := errors.AsType[*VersionError](err); err != nil && !later && !errors.Is(err, errUnsynced) {
			err = &DamageError{s.Path, err}
		}
	}
	if err != nil {
		return nil, h, errors.Join(err, file.Close())
	}
	s.First, s.From = h.First, h.Snapshot
	return file, h, nil
}

// content is what a segment says.
type content struct {
	size    int64    // bytes up to the end of the last sound line
	last    uint64   // the number of the last event, 0 if there is none
	lines   [][]byte // those of other kinds than events and accounts, without newlines
	rooms   []int64  // where lines are that say nothing
	account int64    // where the last line of an account is; 0 for none
	holes   bool     // sound lines follow one that is not
}

// parse reads a whole segment, whose header is data[:headerSize].
func parse(data []byte, first uint64) content {
	c := content{size: headerSize}
	sound := true
	for at := headerSize; at < len(data); {
		line, _, whole := bytes.Cut(data[at:], []byte{'\n'})
		next := at + len(line) + 1
		if whole && c.take(line, int64(at), first, next == len(data)) {
			c.holes = c.holes || !sound
			sound, c.size = true, int64(next)
		} else {
			sound = false
		}
		at = next
	}
	return c
}

// take takes a line and reports whether it is sound.
func (c *content) take(line []byte, at int64, first uint64, end bool) bool {
	switch {
	case bytes.HasPrefix(line, []byte(eventHead)):
		seq, event, ok := parseEvent(line)
		// The machine may have stopped in the middle of the last write.
		if !ok || seq <= c.last || seq < first || end && !jsontext.Value(event).IsValid() {
			return false
		}
		c.last = seq
		return true
	case bytes.HasPrefix(line, []byte(" ")): // nothing, or a line without its first byte
		if len(line) == RoomSize-1 {
			c.rooms = append(c.rooms, at)
		}
		return true
	case !bytes.HasPrefix(line, []byte("{")) || !jsontext.Value(line).IsValid():
		return false
	case bytes.HasPrefix(line, []byte(accountHead)):
		c.account = at
	default:
		c.lines = append(c.lines, line)
	}
	return true
}

// accountAt is the account in the line that data begins with. whole is false if the line
// has no end.
func accountAt(data []byte) (account []byte, whole bool, err error) {
	line, _, whole := bytes.Cut(data, []byte{'\n'})
	account, ok := bytes.CutPrefix(line, []byte(accountHead))
	if err = strict.Valid(line); err == nil && !ok {
		err = errors.New("there is another line in its place")
	}
	if err != nil || !whole {
		return nil, whole, err
	}
	return bytes.Clone(account[:len(account)-1]), true, nil
}

// accountIn is the account that holds, of a segment that was read whole.
func accountIn(data []byte, h header, c content) ([]byte, error) {
	at := h.Account
	if at == 0 {
		return nil, nil
	}
	if at < int64(len(data)) {
		account, whole, err := accountAt(data[at:])
		if whole && err != nil {
			err = fmt.Errorf("its account: %w", err)
		}
		if whole {
			return account, err
		}
	}
	if c.account == 0 { // the line that the header names was not written whole, and is the first one
		return nil, nil
	}
	account, _, err := accountAt(data[c.account:])
	return account, err
}

// Account returns the account that a log has, which somebody may have open; nil for none.
// Errors are those of Open.
func Account(dir string) ([]byte, error) {
	s, h, file, err := last(dir, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if h.Account == 0 {
		return nil, nil
	}
	data := make([]byte, mostAccounts)
	n, err := file.ReadAt(data, h.Account)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if account, whole, err := accountAt(data[:n]); whole && err == nil {
		return account, nil
	}
	data, c, err := s.read(file)
	if err != nil {
		return nil, err
	}
	account, err := accountIn(data, h, c)
	if err != nil {
		return nil, &DamageError{s.Path, err}
	}
	return account, nil
}

// read reads a segment whole.
func (s *Segment) read(file *os.File) (data []byte, c content, err error) {
	info, err := file.Stat()
	if err != nil {
		return nil, c, err
	}
	if info.Size() > maxSegment {
		return nil, c, &DamageError{s.Path, &safefile.TooLargeError{Limit: maxSegment}}
	}
	data = make([]byte, info.Size())
	n, err := file.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, c, err
	}
	data = data[:n]
	if int64(n) < s.From || data[s.From-1] != '\n' {
		return nil, c, &DamageError{s.Path, errors.New("its snapshot is not whole")}
	}
	return data, parse(data, s.First), nil
}

// Lines returns the lines of a log, which somebody may have open, that are neither events
// nor accounts. Errors are those of Open.
func Lines(dir string) ([][]byte, error) {
	s, _, file, err := last(dir, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_, c, err := s.read(file)
	return c.lines, err
}

func appendEvent(dst []byte, seq uint64, data []byte) []byte {
	dst = strconv.AppendUint(append(dst, eventHead...), seq, 10)
	dst = append(append(dst, eventMiddle...), data...)
	return append(dst, '}', '\n')
}

// parseEvent reads the line of an event, newline excluded. Data is a part of line; that
// it is JSON is not checked.
func parseEvent(line []byte) (seq uint64, data []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(eventHead))
	if !ok {
		return 0, nil, false
	}
	digits, data, ok := bytes.Cut(rest, []byte(eventMiddle))
	if !ok || len(digits) > 20 {
		return 0, nil, false
	}
	data, ok = bytes.CutSuffix(data, []byte("}"))
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return seq, data, ok && err == nil && len(data) > 0 && data[0] == '{' && digits[0] != '0'
}
