package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of Landlock's versions, 3 is the first that keeps a program from truncating
// files, 6 from signalling others' processes, 9 from connecting to their
// sockets (https://docs.kernel.org/userspace-api/landlock.html).
const leastLandlock = 3

// maxGrants bounds the rules of one program: beside what is blocked, there may
// be very many files.
const maxGrants = 8192

var errTooMany = fmt.Errorf("more than %d files and directories lie beside what is blocked", maxGrants)

// The rights, as sets of the kernel's.
const (
	rightsRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// rightsWrite has no MAKE_CHAR and no MAKE_BLOCK: a device is a way out.
	rightsWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	rightsDevice = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// rightsFile are those of what is no directory.
	rightsFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	rightsTCP = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	rightsUDP = unix.LANDLOCK_ACCESS_NET_BIND_UDP | unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP
)

// usableDevices are all that a program can open in /dev, unless it is granted more
// of it by name.
var usableDevices = append([]string{"/dev/random", "/dev/urandom"}, devices...)

// unblocked are the paths that are not blocked.
func (r Rules) unblocked(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(at string) bool { return deepest(at, r.Blocked) > deepest(at, r.Except) })
}

// nameServices are sockets that names are looked up by.
var nameServices = []string{"/run/systemd/resolve", "/run/nscd"}

// landlockVersion is what the kernel has, 0 for nothing.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// ruleset is a set of Landlock rules in the making.
type ruleset struct {
	fd      int
	handled uint64
	blocked []string
	except  []string
	grants  int
	notes   []string
}

// landlock holds this thread, and what is started from it, to the rules. The
// notes say what that costs a program. Without a view, in which devices cannot be
// opened, nothing in /dev is granted but what programs need. With a terminal the program may
// open those of its own view.
func (o startRequest) landlock() (notes []string, err error) {
	r, temp, v, terminal := o.Rules, o.Temp, o.View, o.Terminal
	attr := attributes(landlockVersion(), r.Network || o.Outside != "")
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("make a Landlock ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	set := &ruleset{fd: int(fd), handled: attr.Handled_access_fs, blocked: slices.Clone(r.Blocked), except: r.Except}
	if v == noView {
		below := append([]string{"/dev/shm"}, usableDevices...)
		for _, at := range slices.Concat(r.ReadWrite, r.ReadOnly) {
			if strings.HasPrefix(at, "/dev/") {
				below = append(below, at)
			}
		}
		set.blocked, set.except = append(set.blocked, "/dev"), slices.Concat(r.Except, r.unblocked(below))
	}
	var terminals []string
	if terminal && v != noView {
		terminals = []string{terminalsDir, "/dev/ptmx"}
	}
	system := systemPaths
	if r.readsAll() {
		system = nil
	}
	for _, step := range []struct {
		paths   []string
		rights  uint64
		trusted bool
	}{
		{r.ReadWrite, rightsRead | rightsWrite, false},
		{r.ReadOnly, rightsRead, false},
		{system, rightsRead, true},
		{devices, rightsDevice, true},
		{terminals, rightsDevice | unix.LANDLOCK_ACCESS_FS_READ_DIR, true},
	} {
		for _, path := range step.paths {
			blocked := set.blocked
			if v == noView && path == "/" && step.rights&rightsWrite != 0 { // no mount keeps them
				set.blocked = slices.Concat(blocked, kernelDirs)
			}
			err := set.allow(path, step.rights, step.trusted)
			if set.blocked = blocked; err != nil {
				return nil, err
			}
		}
	}
	if r.Network {
		for _, path := range nameServices {
			if err := set.allow(path, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX, true); err != nil {
				return nil, err
			}
		}
	}
	set.blocked = nil // its own directories are its own, wherever they lie
	if err := set.allow(temp, rightsRead|rightsWrite, false); err != nil {
		return nil, err
	}
	if r.Home != "" {
		if err := set.allow(r.Home, rightsRead|rightsWrite, false); err != nil {
			return nil, err
		}
	}
	if r.Spill != "" {
		if err := set.allow(r.Spill, rightsRead, false); err != nil {
			return nil, err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return nil, fmt.Errorf("apply the Landlock ruleset: %w", errno)
	}
	slices.Sort(set.notes)
	return slices.Compact(set.notes), nil
}

// attributes is all that a version of Landlock can deny.
func attributes(version int, network bool) unix.LandlockRulesetAttr {
	a := unix.LandlockRulesetAttr{
		Handled_access_fs: rightsRead | rightsWrite | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK,
	}
	if version >= 5 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version < 9 {
		a.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	if version >= 6 {
		a.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	if !network && version >= 4 {
		a.Handled_access_net = rightsTCP
		if version >= 10 {
			a.Handled_access_net |= rightsUDP
		}
	}
	return a
}

// resolved adds to each path where it leads today. A path into a directory that our
// user may not enter stays as it is: neither may a program.
func resolved(paths []string) ([]string, error) {
	all := slices.Clone(paths)
	for _, p := range paths {
		target, err := filepath.EvalSymlinks(p)
		_, ofSystem := errors.AsType[syscall.Errno](err)
		switch {
		case err == nil && target != p:
			all = append(all, target)
		case ofSystem && !isNowhere(err) && !errors.Is(err, unix.EACCES): // the other kind is a circle of links
			return nil, err
		}
	}
	return all, nil
}

// allow grants rights to what lies at path and below. Symbolic links on the way
// are followed on trusted paths alone, which no agent can change.
func (s *ruleset) allow(path string, rights uint64, trusted bool) error {
	if trusted {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil //nolint:nilerr // what is not there needs no rule
		}
		path = target
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES):
		return nil
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%s is, or leads through, a symbolic link", path)
	case err != nil:
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return s.grant(fd, path, rights)
}

// grant grants rights to an open file, or, where something below it is blocked,
// to all that is beside that. Of what is blocked it grants them to the exceptions.
func (s *ruleset) grant(fd int, path string, rights uint64) error {
	if deepest(path, s.blocked) > deepest(path, s.except) {
		for _, below := range s.except {
			if below != path && within(below, path) {
				if err := s.allow(below, rights, false); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	dir := stat.Mode&unix.S_IFMT == unix.S_IFDIR // else nothing lies below it, though something did when it was blocked
	if !dir {
		rights &= rightsFile
	}
	if !dir || !slices.ContainsFunc(s.blocked, func(b string) bool { return within(b, path) }) {
		return s.add(fd, path, rights)
	}
	if rights&unix.LANDLOCK_ACCESS_FS_MAKE_REG != 0 {
		s.notes = append(s.notes, fmt.Sprintf(
			"nothing can be made, moved or removed directly in %s, because something below it is blocked", path))
	}
	if err := s.add(fd, path, rights&unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
		return err
	}
	names, err := entries(fd)
	if err != nil {
		return &os.PathError{Op: "list", Path: path, Err: err}
	}
	for _, name := range names {
		if err := s.grantEntry(fd, name, filepath.Join(path, name), rights); err != nil {
			return err
		}
	}
	return nil
}

// deepest is the length of the longest of dirs in which path lies; 0 if in none.
func deepest(path string, dirs []string) (length int) {
	for _, dir := range dirs {
		if within(path, dir) {
			length = max(length, len(dir))
		}
	}
	return length
}

// grantEntry is grant for an entry of a directory. A symbolic link is opened as
// such, and nothing follows from a right to it: what may be done where it leads
// is judged by where that lies.
func (s *ruleset) grantEntry(dir int, name, path string, rights uint64) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // it has just gone, or we may not enter it, nor may the program
	}
	defer unix.Close(fd)
	return s.grant(fd, path, rights)
}

// add adds one rule.
func (s *ruleset) add(fd int, path string, rights uint64) error {
	if rights &= s.handled; rights == 0 {
		return nil
	}
	if s.grants++; s.grants > maxGrants {
		return errTooMany
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(s.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return &os.PathError{Op: "allow", Path: path, Err: errno}
	}
	return nil
}

// entries lists an open directory. A directory that may not be read has none.
func entries(fd int) ([]string, error) {
	dir, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dir), "directory")
	defer f.Close()
	return f.Readdirnames(-1)
}
