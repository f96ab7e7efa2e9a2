package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nexus.internal/protocol/safefile"
)

// Confinement says whether the kernel is to hold a program to its [Rules].
type Confinement int

// The confinements.
const (
	// Unconfined is for programs that may do what their user may.
	Unconfined Confinement = iota
	// WherePossible confines where the kernel can, and runs the program even so
	// where it cannot: [Process.Unconfined] says why.
	WherePossible
	// Always refuses to start a program that the kernel cannot confine.
	Always
)

// ErrUnsupported is why nothing that must be confined is started here.
var ErrUnsupported = errors.New("the kernel cannot confine programs")

// Rules is what a program may do. The zero value is an unconfined program
// within the usual limits. Paths are absolute and without symbolic links, as
// filepath.EvalSymlinks gives them, resolved when they were granted and not
// anew for each start: in a directory that the agent can change, it could make
// a link of one. What does not exist is passed over.
type Rules struct {
	Confinement Confinement
	// ReadWrite is what may be read, run and changed, with all below it. The
	// working directory is not among it by itself. The program's own directory
	// for temporary files and devices such as /dev/null always are. Modes,
	// owners, times and other attributes are changed only here, too; and not at
	// all by a program that is granted nothing. Of "/", /proc and /sys, what the kernel has there
	// is read only: its switches are for the whole machine. Any path below may be granted.
	ReadWrite []string
	// ReadOnly is what may be read and run, with all below it; "/" is all. The
	// system's programs, libraries and public settings always are.
	ReadOnly []string
	// Blocked is what may be neither read nor changed, within the above too. The
	// kernel can only grant, so what lies beside it is granted piece by piece:
	// directly in a directory that holds something blocked, at any depth, nothing
	// can be made, moved or removed, and the names below it can be listed. Nor is such
	// a directory changed itself: its mode, owner, times and other attributes stay.
	Blocked []string
	// Except lies within what is blocked, and is not. Where a path lies in some of
	// both, the longest of these counts.
	Except []string
	// Temp is where the program's directory for temporary files is made; it is
	// made itself if need be. "" means the system's. Wherever it lies, the program
	// has its own directory there, and no other.
	Temp string
	// Leftovers removes the program's directory after its end, which does not wait for
	// that; nil: the program's end waits for the removal, 2 s at most.
	Leftovers *safefile.Remover `json:"-"` // no business of the reaper's
	// Home is a directory that outlives the program: its HOME, with the caches of package
	// managers and compilers. It may read, run and change what is in it, wherever it lies. It is
	// made if need be. "" is none: HOME is the user's, or the directory for temporary files if
	// the program does not read all.
	Home string
	// Bare names no settings of the user's to a program with a Home: there are none for it but what lies
	// there.
	Bare bool
	// Spill is a directory that may be read, wherever it lies; "" is none.
	Spill string
	// Network lets the program use the network and sockets of all kinds. Without
	// it a confined program has but pipes and pairs of connected sockets.
	Network bool
	// Gate is the only way out of a program that has no Network; nil is none. The program then
	// finds the gate in its Loopback, as the proxy that the variables HTTP_PROXY and HTTPS_PROXY
	// name. It is not started where the system gives no such network.
	Gate Gate `json:"-"`
	// Service is of ours, and the program finds it at a loopback address: of its Loopback, or of our own
	// network if it has no Loopback. nil is none. It is not started where the system gives no such network.
	Service Service `json:"-"`
	// Loopback is the network that a program without Network shares with others; Confinement must be
	// Always. With nil, and where the system gives no such network, it has no sockets at all.
	Loopback *Loopback `json:"-"`
	// Inherit names variables of our environment that the program gets too.
	// Those that hold keys or change how programs are loaded never are: LD_*,
	// DYLD_*, NEXUS3_*, *_API_KEY.
	Inherit []string
	Limits  Limits
}

// Gate is what a program reaches the network by.
type Gate interface {
	// Serve serves the connections that come to the listening socket until ctx ends, closes it,
	// and returns when all of them are closed. It is called once for each program.
	Serve(ctx context.Context, socket *os.File)
}

// Service is something of ours that a program is told of by its environment and arguments.
type Service interface {
	Gate
	// Tell is what a program is told that finds the service at an address: variables of its
	// environment, as KEY=VALUE, and arguments that follow its own.
	Tell(address string) (env, arguments []string)
}

// Limits bounds each process of a program by the kernel's resource limits. Zero
// means the default, a negative number no limit beyond our own. Core dumps are
// never made.
type Limits struct {
	// Files is the number of open files; default 4,096.
	Files int64
	// FileSize is the size of a file that is written, in bytes; default 8 GiB.
	FileSize int64
	// Processes is how many processes and threads there may be beyond those that
	// the machine has at the start; default 1,024. The kernel counts those of the
	// user as a whole, and holds root to nothing.
	Processes int64
	// CPU is the time on the processor, in seconds; default 3,600.
	CPU int64
	// Data is the private memory that can be written, in bytes; default none.
	Data int64
}

func (l Limits) orDefault() Limits {
	for _, f := range []struct {
		limit *int64
		value int64
	}{{&l.Files, 4096}, {&l.FileSize, 8 << 30}, {&l.Processes, 1024}, {&l.CPU, 3600}, {&l.Data, -1}} {
		if *f.limit == 0 {
			*f.limit = f.value
		}
	}
	return l
}

// check says which path of the rules cannot be meant.
func (r Rules) check() error {
	if r.Loopback != nil && (r.Network || r.Confinement != Always) {
		return errors.New("rules: a loopback is for programs that are always confined and have no network beside it")
	}
	if r.Gate != nil && r.Loopback == nil {
		return errors.New("rules: a gate stands in a loopback")
	}
	if r.Service != nil && r.Loopback == nil && !r.Network && r.Confinement != Unconfined {
		return errors.New("rules: a service is for programs that have a loopback or the network")
	}
	for _, paths := range [][]string{r.ReadWrite, r.ReadOnly, r.Blocked, r.Except, {cmp.Or(r.Temp, "/"), cmp.Or(r.Spill, "/"), cmp.Or(r.Home, "/")}} {
		for _, p := range paths {
			if !filepath.IsAbs(p) || filepath.Clean(p) != p {
				return fmt.Errorf("rules: %q is not an absolute, clean path", p)
			}
		}
	}
	return nil
}

func (r Rules) readsAll() bool {
	return r.Confinement == Unconfined || slices.Contains(r.ReadOnly, "/") || slices.Contains(r.ReadWrite, "/")
}

// reads reports whether the program may read what lies at an absolute path,
// symbolic links and Blocked aside.
func (r Rules) reads(path string) bool {
	if r.readsAll() {
		return true
	}
	in := func(dir string) bool { return within(path, dir) }
	return slices.ContainsFunc(r.ReadWrite, in) || slices.ContainsFunc(r.ReadOnly, in) || slices.ContainsFunc(systemPaths, in)
}

// kernelDirs have the switches of the kernel, and of processes outside: with core_pattern, one that writes
// there has its program run by the kernel, outside of everything.
var kernelDirs = []string{"/proc", "/sys"}

// sparingKernel are the rules with kernelDirs read only where ReadWrite has them, or all, as a whole.
func (r Rules) sparingKernel() Rules {
	if slices.Contains(r.ReadWrite, "/") {
		r.ReadOnly = slices.Concat(r.ReadOnly, kernelDirs)
		return r
	}
	isKernel := func(at string) bool { return slices.Contains(kernelDirs, at) }
	if slices.ContainsFunc(r.ReadWrite, isKernel) {
		r.ReadOnly = slices.Concat(r.ReadOnly, kernelDirs)
		r.ReadWrite = slices.DeleteFunc(slices.Clone(r.ReadWrite), isKernel)
	}
	return r
}

// writes reports whether the program may change what lies at an absolute path, symbolic links and
// Blocked aside.
func (r Rules) writes(path string) bool {
	ofKernel := slices.ContainsFunc(kernelDirs, func(dir string) bool { return within(path, dir) })
	return slices.ContainsFunc(r.ReadWrite, func(dir string) bool { return within(path, dir) && (dir != "/" || !ofKernel) })
}

func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

// systemPaths are the system's programs and libraries and what these need to
// know. Of /etc only what is no secret is among them: as root, a program could
// read it all. Of /proc there is nothing that tells of processes: others' command
// lines hold keys, and the kernel cannot grant a program its own alone. Of the control groups there are the
// limits of the whole, which runtimes size themselves by, and no list: a group's names its processes.
var systemPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/snap",
	"/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/swaps", "/proc/uptime",
	"/proc/version", "/proc/vmstat", "/proc/sys/fs", "/proc/sys/kernel", "/proc/sys/vm", "/sys/devices/system", "/sys/kernel/mm",
	"/dev/random", "/dev/urandom", "/var/lib/dpkg", "/var/cache/fontconfig",
	"/etc/alternatives", "/etc/bash.bashrc", "/etc/ca-certificates", "/etc/debian_version", "/etc/fonts", "/etc/gitconfig",
	"/etc/group", "/etc/host.conf", "/etc/hostname", "/etc/hosts", "/etc/inputrc", "/etc/java", "/etc/ld.so.cache",
	"/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/locale.conf", "/etc/localtime", "/etc/login.defs",
	"/etc/lsb-release", "/etc/machine-id", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd",
	"/etc/pki", "/etc/profile", "/etc/profile.d", "/etc/protocols", "/etc/python3", "/etc/resolv.conf", "/etc/services",
	"/etc/shells", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/terminfo", "/etc/timezone", "/etc/vimrc",
	"/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpuset.cpus.effective", "/sys/fs/cgroup/memory.current",
	"/sys/fs/cgroup/memory.high", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.swap.max", "/sys/fs/cgroup/pids.max",
	"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.shares", "/sys/fs/cgroup/cpuset/cpuset.cpus",
	"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/pids/pids.max", // version 1
}

// devices are the files outside of ReadWrite that may be written to.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty"}
