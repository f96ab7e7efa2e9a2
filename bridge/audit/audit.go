package audit

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
)

const (
	// MaxFile is where a file ends and the next begins, in bytes (SPEC §7).
	MaxFile = 8 << 20
	// Kept is how many files there are beside the one that is written: PATH.1, the
	// youngest, to PATH.3.
	Kept = 3
)

// Log is an audit log. It opens its file with the first line.
type Log struct {
	path string

	mu   sync.Mutex // guards all below, and the files
	file *os.File   // nil until there is a line, and after an error
	size int64      // of file
}

// Open returns the log at path, which goes on where it was left. The directory
// exists; the files are made with mode 0600.
func Open(path string) *Log { return &Log{path: path} }

// Write appends a line, its newline included. After an error the next line opens
// the file again.
func (l *Log) Write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.room(int64(len(line))); err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if err == nil {
		return nil
	}
	if n > 0 { // so that the next line is a line
		err = errors.Join(err, l.file.Truncate(l.size-int64(n)))
	}
	return errors.Join(fmt.Errorf("write the audit log: %w", err), l.close())
}

// room opens the file, or the next one if it cannot take n bytes more. mu is held.
func (l *Log) room(n int64) error {
	if l.file == nil {
		file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		info, err := file.Stat()
		if err != nil {
			return errors.Join(err, file.Close())
		}
		l.file, l.size = file, info.Size()
	}
	if l.size == 0 || l.size+n <= MaxFile {
		return nil
	}
	if err := l.close(); err != nil {
		return err
	}
	for i := Kept; i > 0; i-- {
		if err := os.Rename(l.name(i-1), l.name(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return l.room(n)
}

func (l *Log) name(i int) string {
	if i == 0 {
		return l.path
	}
	return l.path + "." + strconv.Itoa(i)
}

// Close closes the file. A later Write opens it again.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.close()
}

func (l *Log) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file, l.size = nil, 0
	return err
}
