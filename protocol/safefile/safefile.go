// Package safefile opens the files of nexus's home, and nothing that somebody put
// in their place.
//
//	file, err := safefile.Open(path, os.O_RDWR|os.O_CREATE)
//	data, err := safefile.Read(path, 64<<10)
//	err = safefile.Replace(path, data, true)
//
// A link is not followed, a pipe not waited for, and a file that is larger than it can
// be is not read. Of the directories on the way links are followed: the home may be one.
// All functions are safe for concurrent use. The contract is SPEC.md §2.1.
package safefile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The reasons for which a file is not used. They come in a *fs.PathError.
var (
	// ErrNotRegular says that it is a link, a directory, a pipe or the like.
	ErrNotRegular = errors.New("it is no plain file")
	ErrTooLarge   = errors.New("it is too large")
)

// Open opens the regular file at path as os.OpenFile does; one that it makes has mode
// 0600. The error is what the system says, or ErrNotRegular.
func Open(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|openFlags, 0o600)
	if err != nil {
		// Whatever the system calls it.
		if info, failed := os.Lstat(path); failed == nil && !info.Mode().IsRegular() {
			return nil, notRegular(path)
		}
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(cmp.Or(err, notRegular(path)), file.Close())
	}
	return file, nil
}

func notRegular(path string) error { return &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular} }

// Read reads the regular file at path, which has at most that many bytes. Errors are
// those of Open, ErrTooLarge and what the system says.
func Read(path string, most int64) ([]byte, error) {
	file, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, most)
}

// ReadAll reads what a file has, from where it stands, which is at most that many bytes.
func ReadAll(file *os.File, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, &fs.PathError{Op: "read", Path: file.Name(), Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, most)}
	}
	return data, nil
}

// Create makes a file (0600) in the place of whatever stands at path, a directory with
// something in it aside, for writing.
func Create(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Chmod(0o600); err != nil { // under any umask
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return file, nil
}

// Replace puts a file with that text at path in one step: who reads sees the old one or
// the new one, whole. With durable it is on the disk when Replace returns. Until then
// PATH.new is used; one process at a time replaces a file.
func Replace(path string, text []byte, durable bool) error {
	next := path + ".new"
	file, err := Create(next)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Chmod(0o600) // whatever the umask has taken away
	}
	if err == nil && durable {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next) // the reason is what counts
		return err
	}
	if !durable {
		return nil
	}
	return syncDir(filepath.Dir(path))
}
