package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"nexus.internal/supervisor/plainfile"
)

type guardSystem struct {
	tag     tag      // 0: there is none, and all but Pdeathsig rests on it
	cgroups *cgroups // nil: there are none
	record  *record
	keeper  *keeper

	mu      sync.Mutex // guards what follows, and is held where processes are started and reaped
	started map[int]bool
	next    uint64 // the last number that was given to a process
	closed  bool   // nothing is started any more

	quit chan struct{}
	work sync.WaitGroup // reapOrphans
}

// NewGuard finds the means of this machine and takes them into use: we become
// the parent of whatever a process of ours leaves behind, for example. First it
// ends what servers that were killed have left. What the machine lacks is a
// reason of Means; an error is about Dir. The caller must Close it, once all
// processes that were started with it have ended.
func NewGuard(o GuardOptions) (*Guard, error) {
	g := &Guard{log: o.Log, means: Means{Pdeathsig: true}}
	if g.log == nil {
		g.log = zap.NewNop()
	}
	g.started, g.quit = map[int]bool{}, make(chan struct{})
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("guard processes: %w", err)
	}
	g.sweepDead(o.Dir)
	t, err := takeTag()
	if err != nil {
		g.lacks("no tag, nor what rests on it", err)
		return g, nil
	}
	g.tag, g.means.Tag = t, true
	if g.cgroups, err = findCgroups(t); err != nil {
		g.lacks("no cgroups", err)
	} else {
		g.means.CgroupKill, g.means.CgroupMemory, g.means.CgroupTasks = true, g.cgroups.memory, g.cgroups.tasks
	}
	if g.record, err = newRecord(o.Dir, t, g.cgroups); err != nil {
		if g.cgroups != nil {
			g.cgroups.remove()
		}
		return nil, fmt.Errorf("guard processes: %w", err)
	}
	if err := adopt(); err != nil {
		g.lacks("no subreaper", err)
	} else {
		g.means.Subreaper = true
		g.work.Add(1)
		go g.reapOrphans()
	}
	if g.keeper, err = startKeeper(g.record, g.log); err != nil {
		g.lacks("no keeper", err)
	} else {
		g.means.Keeper = true
	}
	return g, nil
}

func (g *Guard) lacks(what string, err error) {
	g.means.Reasons = append(g.means.Reasons, what+": "+err.Error())
}

// adopt makes this process the parent of orphans.
func adopt() error {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		return errors.New("the kernel keeps no list of children")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become one: %w", err)
	}
	return nil
}

// reapOrphans takes note of the end of processes that came to us while what
// they come from lives on.
func (g *Guard) reapOrphans() {
	defer g.work.Done()
	ended := make(chan os.Signal, 1) // one tells of all
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	for {
		select {
		case <-g.quit:
			return
		case <-ended:
			g.adopted(g.isOurs, false)
		}
	}
}

// isOurs reports whether a number is that of a process that we started.
func (g *Guard) isOurs(number uint64) bool { return g.tag.has(number) && number != g.tag.server() }

// Close ends what is left of the processes that were started with the guard,
// which is nothing as a rule, and gives up its means. Nothing can be started with
// it from then on, and a process that is being started is ended too. A later call
// does nothing.
func (g *Guard) Close() error {
	g.mu.Lock()
	again := g.closed
	g.closed = true
	g.mu.Unlock()
	if again || g.tag == 0 {
		return nil
	}
	stuck := endTagged(g.isOurs, func() { g.adopted(g.isOurs, false) })
	close(g.quit)
	g.work.Wait()
	g.adopted(g.isOurs, false) // those that have ended since
	if g.cgroups != nil {
		g.cgroups.remove()
	}
	g.keeper.stop()
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // it was possible to become one
	err := g.record.remove()
	if len(stuck) > 0 {
		err = errors.Join(err, fmt.Errorf("processes that cannot be ended: %v", stuck))
	}
	if err != nil {
		return fmt.Errorf("end the guard: %w", err)
	}
	return nil
}

// sweepDead ends what is left of servers that are dead.
func (g *Guard) sweepDead(dir string) {
	for _, r := range deadRecords(dir) {
		found, _ := tagged(r.tag.has)
		left := r.sweep()
		if len(found) > 0 {
			g.log.Warn("ended what a killed server left", zap.Ints("processes", found), zap.Ints("not_ended", left))
		}
		if len(left) == 0 {
			if err := r.remove(); err != nil {
				g.log.Warn("forget a killed server", zap.Error(err))
			}
		} else {
			r.file.Close()
		}
	}
}

// record is a file that remembers a server's tag. Its name is the tag, its
// content the directory of its cgroups, if it has one. It is locked as long as
// the server lives.
type record struct {
	tag    tag
	path   string
	cgroup string
	file   *os.File // locked
}

// newRecord makes the record of this server.
func newRecord(dir string, t tag, c *cgroups) (_ *record, err error) {
	r := &record{tag: t, path: filepath.Join(dir, t.String())}
	if c != nil {
		r.cgroup = c.dir
	}
	// It gets its name when it is locked: before, it looks like a dead one.
	r.file, err = os.CreateTemp(dir, ".new-*")
	if err != nil {
		return nil, err
	}
	_, err = r.file.WriteString(r.cgroup)
	if err == nil && !tryLock(r.file) {
		err = errors.New("lock a new file")
	}
	if err == nil {
		err = os.Rename(r.file.Name(), r.path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(r.file.Name()), r.file.Close())
	}
	return r, nil
}

// remove forgets the server. A record that is gone is as good as removed.
func (r *record) remove() error {
	err := os.Remove(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, r.file.Close())
}

// deadRecords finds the servers that are dead. Their records are locked: one
// sweeps them.
func deadRecords(dir string) []*record {
	entries, _ := os.ReadDir(dir) // those that it could read
	var dead []*record
	for _, entry := range entries {
		t, ok := parseTag(entry.Name())
		if !ok {
			continue
		}
		r := &record{tag: t, path: filepath.Join(dir, entry.Name())}
		file, err := plainfile.Open(r.path, os.O_RDONLY)
		if err != nil {
			continue
		}
		r.file = file
		there, err := os.Stat(r.path)
		opened, failed := file.Stat()
		if err != nil || failed != nil || !ownedByUs(opened) || !tryLock(file) || !os.SameFile(there, opened) {
			file.Close()
			continue
		}
		content, _ := plainfile.ReadAll(file, maxRecord) // then it has no cgroup
		if filepath.Base(string(content)) == cgroupPrefix+t.String() && filepath.IsAbs(string(content)) {
			r.cgroup = string(content)
		}
		dead = append(dead, r)
	}
	return dead
}

// maxRecord bounds a record, in bytes: the path of a cgroup.
const maxRecord = 4 << 10

// sweep ends all processes of a dead server, but for this one, and returns those
// that it could not end.
func (r *record) sweep() (left []int) {
	if r.cgroup == "" {
		return endTagged(r.tag.has, func() {})
	}
	c := &cgroups{dir: r.cgroup}
	left = endTagged(r.tag.has, (&cgroup{dir: r.cgroup}).kill)
	c.remove()
	return left
}

func tryLock(file *os.File) bool {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

func ownedByUs(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
