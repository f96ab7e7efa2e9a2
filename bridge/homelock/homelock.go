package homelock

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/safefile"
)

// Server is what the lock of a home says of its server.
type Server struct {
	// PID and Port are those of the server that holds the home, or of the last one
	// if that did not end by itself; 0 if it has ended, or not written them yet.
	PID, Port int
	// Runs says that a server holds the home now.
	Runs bool
	// Copied says that the home is a copy of another one, with what the other one's
	// lock said: nothing is known of a server of this home.
	Copied bool
}

// Path is the file that is locked.
func Path(home string) string { return filepath.Join(home, "run", "lock") }

// tries bounds how often a lock is tried for that no server has: somebody who waited
// for the end of the last one (Wait) has it for a moment.
const tries = 1000

// Take locks the file, which is open for reading and writing, until it is closed or the
// process ends, however it ends. It is safefile.ErrLocked if a server has it.
func Take(file *os.File) error {
	for range tries {
		err := safefile.Lock(file)
		if !errors.Is(err, safefile.ErrLocked) {
			return err
		}
		if held, err := recorded(file); err != nil || held {
			return errors.Join(safefile.ErrLocked, err)
		}
		runtime.Gosched()
	}
	return safefile.ErrLocked
}

// Record says in a file that was taken who this server is, so that Find finds it.
func Record(file *os.File, port int) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	inode, err := inodeOf(file) // a copy of the file has another
	if err != nil {
		return err
	}
	if _, err := file.WriteAt(fmt.Appendf(nil, "%d %d\n%d\n", os.Getpid(), port, inode), 0); err != nil {
		return err
	}
	return record(file)
}

// Find says which server holds a home. None is no error, neither is a home that is
// not there.
func Find(home string) (Server, error) {
	if err := safefile.CheckHomeDir(home); err != nil {
		return Server{}, err
	}
	file, err := safefile.Open(Path(home), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Server{}, nil
	}
	if err != nil {
		return Server{}, fmt.Errorf("find the server of %s: %w", home, err)
	}
	defer file.Close()
	s := Read(file)
	if s.Runs, err = recorded(file); err != nil {
		return Server{}, fmt.Errorf("find the server of %s: %w", home, err)
	}
	return s, nil
}

// Read reads what the file says, and not whether it is true.
func Read(file *os.File) (s Server) {
	text := make([]byte, 64)
	n, _ := file.ReadAt(text, 0) // at its end it is io.EOF
	line, rest, whole := bytes.Cut(text[:n], []byte("\n"))
	if _, err := fmt.Sscanf(string(line), "%d %d", &s.PID, &s.Port); err != nil || !whole || s.Port < 1 || s.Port > 65535 {
		return Server{}
	}
	var said uint64
	if _, err := fmt.Sscanf(string(rest), "%d\n", &said); err == nil {
		inode, err := inodeOf(file)
		if err != nil || inode != said {
			return Server{Copied: true}
		}
	}
	return s
}

// Wait returns once nobody holds the lock of the file.
func Wait(file *os.File) error { return wait(file) }

// The lock is two: flock(2), which one server gets and others wait for, and a record
// lock of fcntl(2), which can be asked for without being taken.

func inodeOf(file *os.File) (uint64, error) {
	var about unix.Stat_t
	err := unix.Fstat(int(file.Fd()), &about)
	return about.Ino, err
}

func wait(file *os.File) error {
	for {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_SH); !errors.Is(err, unix.EINTR) { //nolint:forbidigo // shared, which safefile does not do
			return err
		}
	}
}

func record(file *os.File) error {
	return unix.FcntlFlock(file.Fd(), setLock, &unix.Flock_t{Type: unix.F_WRLCK})
}

func recorded(file *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(file.Fd(), getLock, &lock)
	return err == nil && lock.Type != unix.F_UNLCK, err
}
