package logfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"nexus.internal/protocol/safefile"
)

const (
	// MaxFile is where a file ends and the next begins, in bytes (SPEC §7).
	MaxFile = 8 << 20
	// Kept is how many files there are beside the one that is written: PATH.1, the
	// youngest, to PATH.3.
	Kept = 3
)

// Options say what becomes of lines. The zero value leaves it to the system when they
// reach the disk.
type Options struct {
	// Durable lets Sync bring lines to the disk.
	Durable bool
	// Opened is called with each file that lines will go to, the first one included,
	// before the first line. It must not keep the file nor call the Log. May be nil.
	Opened func(*os.File)
}

// Log is a log in files.
type Log struct {
	path string
	o    Options

	mu    sync.Mutex // guards what follows, and the files
	file  *os.File   // nil before the first line and after an error
	wrote uint64     // lines

	syncing sync.Mutex // held while lines are brought to the disk; taken before mu
	synced  uint64     // lines that are there; guarded by syncing
}

// Open returns the log at path, which goes on where it was left. The directory
// exists; the files are made with mode 0600, and have it. What is no plain file
// is refused, and so are links and the files of other users.
func Open(path string, o Options) (*Log, error) {
	l := &Log{path: path, o: o}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return l, nil
}

// Check reports why Open would refuse path, as far as that is seen without a change of anything.
func Check(path string) error {
	file, err := safefile.Open(path, os.O_RDWR|os.O_APPEND)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = safefile.CheckWritable(filepath.Dir(path))
	case err == nil:
		_, err = checkOwner(file)
		file.Close()
	}
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	return nil
}

// checkOwner refuses another user's file: that one may give it any mode again, and has it open perhaps.
func checkOwner(file *os.File) (fs.FileInfo, error) {
	info, err := file.Stat()
	if err == nil && !safefile.Ours(info) {
		err = fmt.Errorf("%s is another user's: choose another file", file.Name())
	}
	return info, err
}

// Write appends a line, its newline included. After an error the next line opens
// the file again, and so it does where the file was moved away.
func (l *Log) Write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, err := l.room(int64(len(line)))
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	n, err := l.file.Write(line)
	if err == nil {
		l.wrote++
		return nil
	}
	if n > 0 { // so that the next line is a line
		err = errors.Join(err, l.file.Truncate(size))
	}
	return errors.Join(fmt.Errorf("write the log: %w", err), l.close())
}

// Sync returns once all lines that were written before are on the disk. One call
// serves all that wait meanwhile.
func (l *Log) Sync() error {
	if !l.o.Durable {
		return nil
	}
	l.mu.Lock()
	mine := l.wrote
	l.mu.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.synced >= mine {
		return nil
	}
	l.mu.Lock()
	file, wrote := l.file, l.wrote
	l.mu.Unlock()
	if file != nil {
		// One that was closed since is on the disk.
		if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("sync the log: %w", err)
		}
	}
	l.synced = wrote
	return nil
}

// room opens the file if it is not the one at path, or the next one if it cannot
// take n bytes more, and says how many it has. mu is held.
func (l *Log) room(n int64) (size int64, err error) {
	if size, err = l.current(); err != nil || size == 0 || size+n <= MaxFile {
		return size, err
	}
	if err := l.close(); err != nil {
		return 0, err
	}
	for i := Kept; i > 0; i-- {
		if err := os.Rename(l.name(i-1), l.name(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return 0, l.open()
}

// current makes sure that the file is the one at path, and says how many bytes it
// has. mu is held.
func (l *Log) current() (size int64, err error) {
	if l.file != nil {
		if there, _ := safefile.At(l.path, l.file); there {
			info, err := l.file.Stat()
			return info.Size(), err
		}
		if err := l.close(); err != nil { // it was moved away
			return 0, err
		}
	}
	if err := l.open(); err != nil {
		return 0, err
	}
	info, err := l.file.Stat()
	if err != nil {
		return 0, errors.Join(err, l.close())
	}
	return info.Size(), nil
}

// open opens the file, and ends a line of it that a power cut tore. mu is held.
func (l *Log) open() error {
	file, err := safefile.Open(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND) // its end is read
	if err != nil {
		return err
	}
	if err := prepare(file); err != nil {
		return errors.Join(err, file.Close())
	}
	l.file = file
	if l.o.Opened != nil {
		l.o.Opened(file)
	}
	return nil
}

func prepare(file *os.File) error {
	info, err := checkOwner(file)
	if err != nil {
		return err
	}
	if info.Mode().Perm() != 0o600 {
		if err := file.Chmod(0o600); err != nil {
			return err
		}
	}
	if info.Size() == 0 {
		return nil
	}
	var last [1]byte
	if _, err := file.ReadAt(last[:], info.Size()-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		_, err = io.WriteString(file, "\n")
	}
	return err
}

func (l *Log) name(i int) string {
	if i == 0 {
		return l.path
	}
	return l.path + "." + strconv.Itoa(i)
}

// Close brings the file to the disk and closes it. A later Write opens it again.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.close()
}

func (l *Log) close() error {
	if l.file == nil {
		return nil
	}
	var err error
	if l.o.Durable {
		err = l.file.Sync()
	}
	err = errors.Join(err, l.file.Close())
	l.file = nil
	return err
}
