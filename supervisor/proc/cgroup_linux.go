package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

const (
	cgroupPrefix = "nexus-"
	// serverCgroup is the name of the cgroup in which systemd starts a server
	// whose unit says DelegateSubgroup=nexus-server: the one above is ours then,
	// and as no process is in it, it can bound those below.
	serverCgroup = "nexus-server"
)

// cgroups is the directory of a server's cgroups (version 2).
type cgroups struct {
	dir           string
	kill          *os.File // cgroup.kill; nil: those below are found by the tag alone
	memory, tasks bool     // the kernel bounds these for those below
}

// findCgroups makes the directory where that can be done, and tells what it is
// good for. On an error there is none.
func findCgroups(t proctree.LineageTag) (*cgroups, error) {
	parent, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	if filepath.Base(parent) == serverCgroup {
		parent = filepath.Dir(parent)
	}
	return makeCgroups(parent, t, tryCgroup)
}

// makeCgroups makes a server's directory in parent. try sees whether processes
// can be started there.
func makeCgroups(parent string, t proctree.LineageTag, try func(dir string) error) (*cgroups, error) {
	c := &cgroups{dir: filepath.Join(parent, cgroupPrefix+t.String())}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("no cgroup can be made: %w", errors.Unwrap(err))
	}
	if err := try(c.dir); err != nil {
		os.Remove(c.dir)
		return nil, err
	}
	// Each by itself: one that is not there must not keep the other away.
	for _, control := range []string{"+memory", "+pids"} {
		for _, dir := range []string{parent, c.dir} { // it has it already, or we see below that it has not
			_ = writeFile(filepath.Join(dir, "cgroup.subtree_control"), control)
		}
	}
	data, _ := proctree.ReadFile(filepath.Join(c.dir, "cgroup.subtree_control")) // then it has none
	active := strings.Fields(string(data))
	c.kill = openKill(c.dir)
	c.memory, c.tasks = slices.Contains(active, "memory"), slices.Contains(active, "pids")
	return c, nil
}

// tryCgroup starts a process in a cgroup, and has the kernel kill nobody there.
func tryCgroup(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		return errors.New("cgroup.kill is missing (Linux 5.14 has it)")
	}
	file, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open a cgroup: %w", err)
	}
	defer file.Close()
	cmd := exec.Command("/proc/self/exe", watchdogArg) // ends at once, as it is told nothing
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(file.Fd())}
	if err := onSpawner(cmd.Start); err != nil {
		return fmt.Errorf("no process can be started in a cgroup: %w", errors.Unwrap(err))
	}
	_ = cmd.Wait() // its status says nothing
	return nil
}

// ownCgroup is the directory of our own cgroup.
func ownCgroup() (string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("no cgroups: %w", err)
	}
	path := ""
	for line := range strings.Lines(string(data)) {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSpace(p)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("no cgroups: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		front, back, _ := strings.Cut(line, " - ")
		fields := strings.Fields(front) // ID PARENT DEVICE ROOT MOUNTPOINT …
		if path != "" && len(fields) > 4 && strings.HasPrefix(back, "cgroup2 ") && within(path, fields[3]) {
			return filepath.Join(fields[4], strings.TrimPrefix(path, strings.TrimSuffix(fields[3], "/"))), nil
		}
	}
	return "", errors.New("cgroup v2 is not mounted")
}

func within(path, root string) bool {
	return root == "/" || path == root || strings.HasPrefix(path, root+"/")
}

// openKill opens cgroup.kill of a cgroup; nil if it cannot.
func openKill(dir string) *os.File {
	file, err := proctree.Open(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY)
	if err != nil {
		return nil
	}
	return file
}

// killBy ends all that is in the cgroup of an open cgroup.kill.
func killBy(file *os.File) {
	_, _ = file.WriteAt([]byte("1"), 0) // what is left is found by the tag
}

func writeFile(path, value string) error {
	file, err := proctree.Open(path, os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// remove ends all that is below and removes the directory.
func (c *cgroups) remove() {
	killBy(c.kill)
	c.kill.Close()
	limit := time.Now().Add(proctree.KillPatience)
	for {
		entries, _ := os.ReadDir(c.dir)
		for _, entry := range entries {
			if entry.IsDir() {
				_ = unix.Rmdir(filepath.Join(c.dir, entry.Name()))
			}
		}
		err := unix.Rmdir(c.dir)
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) || time.Now().After(limit) {
			return
		}
		proctree.AwaitAny(nil, time.Now().Add(time.Millisecond)) // those that were killed are leaving
	}
}

// cgroup is that of one process with its tree. nil is none.
//
// Programs of our user own its files: they could take a lease on one, which keeps those
// that open it waiting, or take its mode away. So the files that are needed while such
// programs run are opened before the first one starts. There are four at most.
type cgroup struct {
	dir           string
	file          *os.File            // dir; closed once the process has started
	files         map[string]*os.File // by name; those that the kernel has
	memory, tasks bool                // limits are set
	killed        bool                // the kernel has killed for its limit; set by remove
}

// maxCounters bounds a file of counters, in bytes.
const maxCounters = 4 << 10

// make makes a cgroup with limits.
func (c *cgroups) make(number uint64, l Limits) (*cgroup, error) {
	g := &cgroup{dir: filepath.Join(c.dir, strconv.FormatUint(number, 16)), files: map[string]*os.File{}}
	if err := os.Mkdir(g.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make its cgroup: %w", err)
	}
	set := func(name, value string) error {
		if err := writeFile(filepath.Join(g.dir, name), value); err != nil {
			return fmt.Errorf("limit its cgroup: %w", err)
		}
		return nil
	}
	var err error
	if g.memory = c.memory && l.MemoryBytes > 0; g.memory {
		_ = set("memory.oom.group", "1") // Linux before 4.19; then those that are not killed are ended after
		err = set("memory.max", strconv.FormatUint(l.MemoryBytes, 10))
	}
	if g.tasks = c.tasks && l.Processes > 0; g.tasks && err == nil {
		err = set("pids.max", strconv.FormatUint(l.Processes, 10))
	}
	if err == nil {
		err = g.open()
	}
	if err != nil {
		g.file.Close()
		g.remove()
		return nil, err
	}
	return g, nil
}

// open opens the directory and the files that are needed later.
func (g *cgroup) open() (err error) {
	for name, flag := range map[string]int{
		"cgroup.kill": os.O_WRONLY, "cpu.stat": os.O_RDONLY, "memory.events": os.O_RDONLY, "pids.events": os.O_RDONLY,
	} {
		if name == "memory.events" && !g.memory || name == "pids.events" && !g.tasks {
			continue
		}
		file, err := proctree.Open(filepath.Join(g.dir, name), flag)
		if errors.Is(err, fs.ErrNotExist) {
			continue // an older kernel
		}
		if err != nil {
			return fmt.Errorf("open its cgroup: %w", err)
		}
		g.files[name] = file
	}
	g.file, err = os.Open(g.dir)
	return err
}

func (g *cgroup) started() {
	if g != nil {
		g.file.Close()
	}
}

func (g *cgroup) kill() {
	if g != nil {
		killBy(g.files["cgroup.kill"])
	}
}

// remove closes it and removes it, if nobody is in it. Its directory's removal is tried
// again with the server's.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	g.killed = g.outOfMemory()
	for _, file := range g.files {
		file.Close()
	}
	_ = unix.Rmdir(g.dir)
}

// outOfMemory reports whether the kernel killed for the sake of its limit.
func (g *cgroup) outOfMemory() bool {
	return g != nil && (g.killed || g.memory && g.counter("memory.events", "oom_kill") > 0)
}

// usage is what the cgroup knows, and limits that are kept there left out.
func (g *cgroup) usage() usage {
	u := usage{cpu: time.Duration(min(g.counter("cpu.stat", "usage_usec"), 1<<50)) * time.Microsecond}
	u.denied = g.tasks && g.counter("pids.events", "max") > 0
	return u
}

// counter reads a number of a file of NAME NUMBER lines; 0 if it is not there.
func (g *cgroup) counter(file, name string) int64 {
	data := make([]byte, maxCounters)
	n, _ := g.files[file].ReadAt(data, 0) // at its end; or there is no such number
	data = data[:n]
	for line := range bytes.Lines(data) {
		if fields := bytes.Fields(line); len(fields) == 2 && string(fields[0]) == name {
			n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return max(n, 0)
		}
	}
	return 0
}
