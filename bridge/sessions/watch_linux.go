package sessions

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// watch learns from the system which files of a directory were changed. Its descriptor is
// closed when it is collected.
type watch struct {
	fd     int
	buffer []byte
}

// watched are the changes of a directory's files, and its own end.
const watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// local are the file systems that no other machine writes to: of its writes this one would
// not be told.
var local = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
	0x2fc12fc1, // ZFS, whose header is not in Linux
}

// newWatch watches a directory; nil where that cannot be done.
func newWatch(dir string) *watch {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || !slices.Contains(local, s.Type) {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	w := &watch{fd: fd, buffer: make([]byte, 64<<10)}
	runtime.AddCleanup(w, func(fd int) { unix.Close(fd) }, fd)
	if _, err := unix.InotifyAddWatch(fd, dir, watched); err != nil {
		return nil
	}
	return w
}

// changed says which files were changed since it was last asked; false if more than the
// system could note, or the directory itself is another.
func (w *watch) changed() (files map[string]bool, ok bool) {
	defer runtime.KeepAlive(w)
	files = map[string]bool{}
	for {
		n, err := unix.Read(w.fd, w.buffer)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return files, true
		case err != nil || n == 0:
			return nil, false
		}
		for events := w.buffer[:n]; len(events) >= unix.SizeofInotifyEvent; {
			mask, length := binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[12:])
			end := unix.SizeofInotifyEvent + int(length)
			if mask&(unix.IN_Q_OVERFLOW|unix.IN_IGNORED|unix.IN_UNMOUNT|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0 {
				return nil, false
			}
			name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:end], []byte{0})
			if len(name) > 0 {
				files[string(name)] = true
			}
			events = events[end:]
		}
	}
}
