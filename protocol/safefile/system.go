package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	noFollow = unix.O_NOFOLLOW
	nonBlock = unix.O_NONBLOCK // waits for no other end of a pipe
)

// SyncDir returns once the names in a directory are on the disk.
func SyncDir(dir string) error {
	file, err := OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// CheckWritable reports why nothing could be made in a directory; nil if something could.
func CheckWritable(dir string) error {
	if err := unix.Access(dir+itself, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write into", Path: dir, Err: err}
	}
	return nil
}

// Lock locks a file or directory, until it is closed. It does not wait: the error is
// ErrLocked, or what the system says.
func Lock(file *os.File) error {
	err := flock(file, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// WaitLock is Lock, but it waits.
func WaitLock(file *os.File) error { return flock(file, unix.LOCK_EX) }

// Release unlocks a file and closes it. Closing alone leaves the lock, for a moment, to a
// process that is just being started: that has the file open until it runs its program.
func Release(file *os.File) error {
	_ = flock(file, unix.LOCK_UN) // closing does it, then
	return file.Close()
}

func flock(file *os.File, how int) error {
	for {
		if err := unix.Flock(int(file.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// FileID is what tells a file from all others that are there at the same time, whatever its name.
type FileID struct{ device, inode uint64 }

// Identify is the identity of a file, by what a look at it has told.
func Identify(info fs.FileInfo) FileID {
	stat := info.Sys().(*syscall.Stat_t)
	return FileID{uint64(stat.Dev), stat.Ino} //nolint:unconvert // of another type on other systems
}

// Ours reports whether a file belongs to our user.
func Ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// OursOrRoots reports whether a file belongs to our user or root.
func OursOrRoots(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid())
}

// SameOwner reports whether two files belong to one user.
func SameOwner(a, b fs.FileInfo) bool {
	one, ok := a.Sys().(*syscall.Stat_t)
	other, too := b.Sys().(*syscall.Stat_t)
	return ok && too && one.Uid == other.Uid
}

// AsOwner says how a command is run as the owner of a file, as in "run this as its owner
// (sudo -u '#990' …)". info is of package os.
func AsOwner(info fs.FileInfo) string {
	return fmt.Sprintf("run this as its owner (sudo -u '#%d' …)", info.Sys().(*syscall.Stat_t).Uid)
}

// OwnerWrites reports whether nobody but its owner may write a file, or put files into a
// directory.
func OwnerWrites(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 == 0 }
