package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// view is by which namespaces a confined program is kept from seeing what is
// blocked and from changing modes, owners, times and other attributes of files
// outside of what it may write: Landlock has no rights for these. In its mount
// namespace what is blocked is covered, all but ReadWrite is mounted read-only, and
// devices cannot be opened but for those that all programs need: one that holds a
// file system has all files, and Landlock cannot tell it from a file. An IPC namespace keeps it from the shared memory of others, and ends
// its own with it.
type view int

// The views, those that change least for a program first.
const (
	mountView view = iota // takes CAP_SYS_ADMIN
	userView              // by a user namespace; files of other users seem to be nobody's
	noView                // the filter of system calls does what it can
)

// attr adds the namespaces to those that a process is started with.
func (v view) attr(a *syscall.SysProcAttr) error {
	switch v {
	case mountView:
		a.Cloneflags |= unix.CLONE_NEWNS | unix.CLONE_NEWIPC
	case userView:
		if err := ownUsers(a); err != nil {
			return err
		}
		a.Cloneflags |= unix.CLONE_NEWNS | unix.CLONE_NEWIPC
		// Until it is the program. By the second it enters its user's directories as root
		// does, also those that another program has closed.
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_READ_SEARCH}
	case noView:
	}
	return nil
}

// ownUsers adds a user namespace in which ids are what they are outside.
func ownUsers(a *syscall.SysProcAttr) error {
	uids, err := identity("/proc/self/uid_map", os.Geteuid())
	if err != nil {
		return err
	}
	gids, err := identity("/proc/self/gid_map", os.Getegid())
	if err != nil {
		return err
	}
	a.Cloneflags |= unix.CLONE_NEWUSER
	a.UidMappings, a.GidMappings, a.GidMappingsEnableSetgroups = uids, gids, os.Geteuid() == 0
	return nil
}

// lost reports whether the spawner has ended, so that another is worth to be tried.
func (w way) lost() bool { return w.spawner != nil && w.spawner.over.Load() }

// least is the first view that a program may have where it is started.
func (w way) least(first view) view {
	if w.spawner != nil && w.spawner.user {
		return max(first, userView)
	}
	return first
}

// identity maps ids to themselves: all that root knows, or one's own.
func identity(known string, own int) ([]syscall.SysProcIDMap, error) {
	if os.Geteuid() != 0 {
		return []syscall.SysProcIDMap{{ContainerID: own, HostID: own, Size: 1}}, nil
	}
	data, err := os.ReadFile(known)
	if err != nil {
		return nil, err
	}
	var ids []syscall.SysProcIDMap
	for line := range bytes.Lines(data) {
		var first, outside, size int
		if _, err := fmt.Sscan(string(line), &first, &outside, &size); err != nil {
			return nil, fmt.Errorf("%s: %w", known, err)
		}
		ids = append(ids, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
	}
	return ids, nil
}

// place is a path at which something is mounted in a view.
type place struct {
	cover bool // an empty directory or file, else what is there
	write bool
	tree  int  // a copy of what is there; -1 for a cover
	dir   bool // what is there is a directory
}

// enter makes the view of this process's mount namespace, which it must have for
// itself, and goes to its working directory in it. A [refusedError] is that the
// system does not let it.
func (v view) enter(r Rules, temp string, terminal bool) error {
	if v == noView {
		return nil
	}
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	// What is unmounted elsewhere must not be kept busy here.
	if err := refused("part with the mounts of others", unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")); err != nil {
		return err
	}
	places, err := v.places(r, temp)
	if err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV}
	if !slices.Contains(r.ReadWrite, "/") {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := refused("make files read-only", unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr)); err != nil {
		return err
	}
	h := holder{blocked: r.Blocked}
	if slices.Contains(r.ReadWrite, "/") {
		if err := h.holdPlace("/"); err != nil {
			return err
		}
	}
	for _, at := range slices.Sorted(maps.Keys(places)) { // what lies above comes first
		err := put(at, places, cwd)
		if err == nil && places[at].write {
			err = h.holdPlace(at)
		}
		if err != nil {
			return err
		}
	}
	if terminal {
		if err := ownTerminals(); err != nil {
			return fmt.Errorf("mount terminals: %w", err)
		}
	}
	if err := os.Chdir(cwd); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// places finds what is to be mounted, and opens what is to stay as it is.
func (v view) places(r Rules, temp string) (map[string]place, error) {
	places := map[string]place{}
	if slices.Contains(r.ReadWrite, "/") {
		for _, at := range kernelDirs {
			places[at] = place{}
		}
	}
	for _, at := range r.ReadWrite {
		if at != "/" && deepest(at, r.Blocked) <= deepest(at, r.Except) {
			places[at] = place{write: true}
		}
	}
	for _, at := range r.Blocked {
		places[at] = place{cover: true}
	}
	if v == userView && os.Geteuid() != 0 {
		// ssh refuses settings that seem to be nobody's.
		places["/etc/ssh/ssh_config.d"] = place{cover: true}
	}
	for _, at := range r.Except {
		places[at] = place{write: r.writes(at)}
	}
	if r.Spill != "" {
		places[r.Spill] = place{}
	}
	places[temp] = place{write: true}
	if r.Home != "" {
		places[r.Home] = place{write: true}
	}
	for at, p := range maps.Clone(places) {
		if !p.cover && same(places, at, p.write, slices.Contains(r.ReadWrite, "/")) {
			delete(places, at)
		}
	}
	for _, at := range r.unblocked(usableDevices) {
		places[at] = place{} // which devices can be written to is Landlock's to say
	}
	for _, at := range slices.Collect(maps.Keys(places)) {
		if err := prepare(at, places); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// prepare opens what is to stay as it is at a path, and passes over what is not
// there and what is a link, where landlock says so: what is blocked is among the
// places by its own path, too. A cover for what lies in a directory that cannot be
// entered, as it is of another user or group, comes over that directory: it may be
// opened while the program runs.
func prepare(at string, places map[string]place) error {
	p, ok := places[at]
	if !ok {
		return nil
	}
	fd, dir, err := openPlace(at)
	switch {
	case err == nil:
	case errors.Is(err, unix.EACCES) && p.cover:
		delete(places, at)
		places[path.Dir(at)] = place{cover: true}
		return prepare(path.Dir(at), places)
	case isNowhere(err), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EACCES):
		delete(places, at)
		return nil
	default:
		return &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(fd)
	p.dir, p.tree = dir, -1
	if !p.cover {
		p.tree, err = unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	}
	places[at] = p
	return refused("copy the mount of "+at, err)
}

// isNowhere reports whether an error of looking at a path is that nothing is there.
// No other error says so: a directory may be closed now and open later.
func isNowhere(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG)
}

// same reports whether what lies at a path is, by what lies above, as it is to be.
func same(places map[string]place, at string, write, all bool) bool {
	for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
		if above, ok := places[dir]; ok {
			return !above.cover && above.write == write
		}
	}
	return write == all
}

// openPlace opens a path without symbolic links.
func openPlace(at string) (fd int, dir bool, err error) {
	fd, err = unix.Openat2(unix.AT_FDCWD, at, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return -1, false, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		unix.Close(fd)
		return -1, false, err
	}
	return fd, stat.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// put mounts what is to be at a path. A path that is not there any more, because
// what is above it was covered, needs nothing.
func put(at string, places map[string]place, cwd string) error {
	p := places[at]
	target, dir, err := openPlace(at)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil && dir != p.dir {
		err = unix.ENOTDIR
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(target)
	tree := p.tree
	if p.cover {
		if tree, err = empty(at, p.dir, places, cwd); err != nil {
			return refused("cover "+at, err)
		}
	}
	defer unix.Close(tree)
	var attr unix.MountAttr
	if !p.write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if p.dir { // a file is meant as it is, also a device
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if attr.Attr_set != 0 {
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	}
	if err == nil {
		err = unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	}
	return refused("mount "+at, err)
}

// holder makes the directories above what is blocked read-only, and leaves what
// is beside that as it is: who closed such a directory, or gave it to another user,
// would take what is blocked from those that it belongs to.
type holder struct {
	blocked []string
	mounts  int
}

// above reports whether something blocked lies below a path.
func (h *holder) above(at string) bool {
	return slices.ContainsFunc(h.blocked, func(blocked string) bool { return blocked != at && within(blocked, at) })
}

// holdPlace holds a place that may be written to, where something is mounted for it.
func (h *holder) holdPlace(at string) error {
	if !h.above(at) {
		return nil
	}
	fd, dir, err := openPlace(at)
	if errors.Is(err, unix.ENOENT) {
		return nil // put has passed over it
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(fd)
	if !dir {
		return nil
	}
	return h.hold(fd, at)
}

// hold holds the root of a mount, and what is above something blocked below it. Each
// entry beside that becomes a mount of its own.
func (h *holder) hold(root int, at string) error {
	names, err := entries(root)
	if err != nil {
		return &os.PathError{Op: "list", Path: at, Err: err}
	}
	for _, name := range names {
		if path := path.Join(at, name); !slices.Contains(h.blocked, path) { // else a cover comes
			if err := h.holdEntry(root, name, path); err != nil {
				return err
			}
		}
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return refused("make "+at+" read-only", unix.MountSetattr(root, "", unix.AT_EMPTY_PATH, &attr))
}

// holdEntry makes a mount of an entry of a directory, but for a symbolic link.
func (h *holder) holdEntry(dir int, name, at string) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if isNowhere(err) || errors.Is(err, unix.EACCES) {
		return nil // it has just gone, or the directory cannot be entered: it stays read-only
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: at, Err: err}
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	if h.mounts++; h.mounts > maxGrants {
		return errTooMany
	}
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return refused("copy the mount of "+at, err)
	}
	defer unix.Close(tree)
	err = unix.MoveMount(tree, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil // it has just gone
	case err != nil:
		return refused("mount "+at, err)
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR && h.above(at):
		return h.hold(tree, at)
	}
	return nil
}

// empty makes a mount to cover a path with: a directory with nothing but what
// leads to the places below it and to the working directory, or an empty file.
func empty(at string, dir bool, places map[string]place, cwd string) (tree int, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "mode", "0755"); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, err
	}
	if !dir {
		defer unix.Close(root)
		if err := unix.Mknodat(root, "empty", unix.S_IFREG, 0); err != nil {
			return -1, err
		}
		return unix.OpenTree(root, "empty", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	}
	needed := map[string]bool{cwd: true} // and whether it is a directory
	for below, p := range places {
		if !p.cover {
			needed[below] = needed[below] || p.dir
		}
	}
	for _, below := range slices.Sorted(maps.Keys(needed)) {
		if below == at || !within(below, at) {
			continue
		}
		if err := makeWay(root, strings.TrimPrefix(below, at+"/"), needed[below]); err != nil {
			unix.Close(root)
			return -1, err
		}
	}
	return root, nil
}

// makeWay makes a path below a directory, the last of it a directory or a file.
func makeWay(root int, way string, dir bool) error {
	for end := range len(way) + 1 {
		if end < len(way) && way[end] != '/' {
			continue
		}
		var err error
		if end == len(way) && !dir {
			err = unix.Mknodat(root, way, unix.S_IFREG, 0)
		} else {
			err = unix.Mkdirat(root, way[:end], 0o755)
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "make", Path: way[:end], Err: err}
		}
	}
	return nil
}
