package safefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNotRegular says that there is a link, a directory, a pipe or the like in the place
// of a file. It comes in a *fs.PathError.
var ErrNotRegular = errors.New("is not a regular file")

// ErrForeign says that a file belongs neither to our user nor to root. It comes in a
// *fs.PathError.
var ErrForeign = errors.New("belongs to another user")

// ErrLocked says that another open file has the lock.
var ErrLocked = errors.New("it is locked")

// TooLargeError says that a file is larger than it can be. It comes in a *fs.PathError.
type TooLargeError struct{ Limit int64 } // bytes

func (e *TooLargeError) Error() string { return fmt.Sprintf("is larger than %d bytes", e.Limit) }

// Open opens the regular file at path as os.OpenFile does; a file that it makes has mode
// 0600. The error is what the system says, or ErrNotRegular.
func Open(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|noFollow|nonBlock, 0o600)
	return regular(file, err, path, os.Lstat)
}

// OpenRoot is os.OpenRoot, and waits for nobody: where a named pipe stands in the place of the
// directory, os.OpenRoot waits for the pipe's other end.
func OpenRoot(dir string) (*os.Root, error) { return os.OpenRoot(dir + itself) }

// OpenRootIn is OpenRoot within another root.
func OpenRootIn(root *os.Root, dir string) (*os.Root, error) { return root.OpenRoot(dir + itself) }

// OpenDir opens a directory for reading, and waits for nobody, as OpenRoot.
func OpenDir(dir string) (*os.File, error) { return os.Open(dir + itself) }

// ReadDir is os.ReadDir, and waits for nobody, as OpenRoot.
func ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir + itself) }

// itself, behind a path, has the system open a directory or nothing (POSIX, pathname
// resolution).
const itself = "/."

// OpenLinked opens the regular file at path, or the file that a link there leads to, for
// reading. Errors are those of Open.
func OpenLinked(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|nonBlock, 0)
	return regular(file, err, path, os.Stat)
}

// OpenNamed is OpenLinked for a file that a person names and that is read once. It also opens
// what the process was started with, be it a pipe: /dev/stdin, /dev/fd/N or /proc/self/fd/N,
// as of a shell's <(command). The open waits for nobody; a read of a pipe waits for its writer.
func OpenNamed(path string) (*os.File, error) {
	switch clean := filepath.Clean(path); {
	case clean == "/dev/stdin", filepath.Dir(clean) == "/dev/fd", filepath.Dir(clean) == "/proc/self/fd":
		return os.OpenFile(path, os.O_RDONLY|nonBlock, 0)
	}
	return OpenLinked(path)
}

// OpenIn is OpenLinked for a name in root, where another user may have put something: the
// error is ErrForeign unless the file, each directory of name, and a link in the place of
// any of these belong to our user or root. A link out of root is an error of root.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	return openOwn(name, root.Lstat, func() (*os.File, error) {
		file, err := root.OpenFile(name, os.O_RDONLY|nonBlock, 0)
		return regular(file, err, name, root.Stat)
	})
}

// OpenFound is OpenIn for a regular file that was just found there. It asks less of the system
// if that is still the same one.
func OpenFound(root *os.Root, name string, found fs.FileInfo) (*os.File, error) {
	if OursOrRoots(found) {
		if file, err := root.OpenFile(name, os.O_RDONLY|nonBlock|noFollow, 0); err == nil {
			if info, err := file.Stat(); err == nil && os.SameFile(info, found) {
				return file, nil
			}
			_ = file.Close() // it was not used
		}
	}
	return OpenIn(root, name)
}

// openOwn opens the file with that name, as OpenIn does.
func openOwn(name string, lstat func(string) (fs.FileInfo, error), open func() (*os.File, error)) (*os.File, error) {
	for part := name; part != "."; part = filepath.Dir(part) {
		info, err := lstat(part)
		if err != nil {
			return nil, err
		}
		if !OursOrRoots(info) {
			foreign := &fs.PathError{Op: "open", Path: name, Err: ErrForeign}
			if part != name {
				foreign.Err = fmt.Errorf("is in %s, which %w", part, ErrForeign)
			}
			return nil, foreign
		}
	}
	file, err := open()
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !OursOrRoots(info) {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrForeign}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// regular closes a file that is not a regular one. stat looks at path, for the reason of
// an error, which differs from system to system.
func regular(file *os.File, err error, path string, stat func(string) (fs.FileInfo, error)) (*os.File, error) {
	refused := &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	if err != nil {
		info, failed := stat(path)
		if failed != nil || info.Mode().IsRegular() {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			refused.Err = fmt.Errorf("%w but a symbolic link", ErrNotRegular)
		}
		return nil, refused
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refused
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Read reads the regular file at path, which has at most limit bytes. Errors are those of
// Open and ReadAll.
func Read(path string, limit int64) ([]byte, error) {
	file, err := Open(path, os.O_RDONLY)
	return readClose(file, err, limit)
}

// ReadLinked is Read for what OpenLinked opens.
func ReadLinked(path string, limit int64) ([]byte, error) {
	file, err := OpenLinked(path)
	return readClose(file, err, limit)
}

// ReadNamed is Read for what OpenNamed opens.
func ReadNamed(path string, limit int64) ([]byte, error) {
	file, err := OpenNamed(path)
	return readClose(file, err, limit)
}

// ReadOwn is ReadLinked for a name in dir, but refuses what OpenIn refuses as another
// user's. A link may lead out of dir.
func ReadOwn(dir, name string, limit int64) ([]byte, error) {
	path := filepath.Join(dir, name)
	file, err := openOwn(name,
		func(name string) (fs.FileInfo, error) { return os.Lstat(filepath.Join(dir, name)) },
		func() (*os.File, error) { return OpenLinked(path) })
	return readClose(file, err, limit)
}

func readClose(file *os.File, err error, limit int64) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, limit)
}

// ReadAll reads the rest of a file, which is at most limit bytes. The error is what the
// system says, or a *TooLargeError.
func ReadAll(file *os.File, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: file.Name(), Err: &TooLargeError{limit}}
	}
	return data, nil
}

// At reports whether path names the open file itself, no link to it. The error is what
// the system says: fs.ErrNotExist if path names nothing.
func At(path string, file *os.File) (bool, error) {
	opened, err := file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, there), err
}

// Create makes a file (0600) in the place of whatever stands at path, a directory with
// something in it aside, for reading and writing.
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

// Renew makes a file (0600) that fill writes, puts it at path in one step and returns it,
// open. Whoever opens path gets the old file or the new one, whole. Until then the new
// one is PATH.new. It is durable if fill syncs it and SyncDir is called afterwards. After
// an error, which may be that of fill, the old file is as it was.
func Renew(path string, fill func(*os.File) error) (*os.File, error) {
	next := path + ".new"
	file, err := Create(next)
	if failed, ok := errors.AsType[*fs.PathError](err); ok && failed.Path == next { // path is what the caller knows
		return nil, &fs.PathError{Op: "write", Path: path, Err: failed.Err}
	}
	if err != nil {
		return nil, err
	}
	if err = fill(file); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		file.Close()
		os.Remove(next) // the reason is what counts
		return nil, err
	}
	return file, nil
}

// Replace is Renew with that text. With durable it is on the disk when Replace returns.
func Replace(path string, text []byte, durable bool) error {
	_, err := Renew(path, func(file *os.File) error {
		_, err := file.Write(text)
		if err == nil && durable {
			err = file.Sync()
		}
		return errors.Join(err, file.Close())
	})
	if err != nil || !durable {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Copy copies a regular file of at most limit bytes, with its time, in the place of whatever file stands at to, in one step and durably. Once ctx ends it
// fails with its cause; of a larger file, which is not read, with a *TooLargeError. Nothing is left of it then.
func Copy(ctx context.Context, from, to string, limit int64) error {
	in, err := Open(from, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if info.Size() > limit {
		return &fs.PathError{Op: "read", Path: from, Err: &TooLargeError{limit}}
	}
	_, err = Renew(to, func(file *os.File) error {
		_, err := io.Copy(file, Within(ctx, in, info.Size()))
		if err == nil {
			err = errors.Join(os.Chtimes(file.Name(), info.ModTime(), info.ModTime()), file.Sync())
		}
		return errors.Join(err, file.Close())
	})
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// Probe reports why a file of that many bytes cannot be saved in dir; nil if it can.
// Nothing is left of the file, also if the process is killed after it was made.
func Probe(dir string, size int) error {
	file, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return err
	}
	err = os.Remove(file.Name())
	_, failed := file.Write(make([]byte, size)) // a full disk still has room for a name
	return errors.Join(failed, err, file.Close())
}
