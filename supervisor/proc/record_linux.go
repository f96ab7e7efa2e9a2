package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

// record is a file that remembers a server's tag, so that the next server of its
// home can end what a killed one has left. Its name is the tag. It is locked as
// long as the server lives.
type record struct {
	tag    proctree.LineageTag
	path   string
	cgroup string   // the directory of the server's cgroups; "" for none
	file   *os.File // locked
}

// content is what a record says. A copy of a record, as a copied home has one, is
// not locked, although the server may live: a record is worth something only if it
// is the file that the server made.
type content struct {
	Boot      string `json:"boot"`          // of the machine
	Namespace uint64 `json:"pid_namespace"` // that PID counts in
	PID       int    `json:"pid"`
	Started   int64  `json:"started"` // when the process did, in ticks since the boot
	Device    uint64 `json:"device"`  // of the file
	Inode     uint64 `json:"inode"`
	Cgroup    string `json:"cgroup,omitempty" wire:"default"`
}

// maxRecord bounds a record, in bytes: the path of a cgroup and some numbers.
const maxRecord = 8 << 10

// describe is what the record of this server says.
func describe(file *os.File, c *cgroups) (content, error) {
	var about unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &about); err != nil {
		return content{}, err
	}
	us, err := proctree.Find(os.Getpid())
	if err != nil && !proctree.Gone(err) { // without /proc nothing is found by it either
		return content{}, err
	}
	d := content{
		Boot: bootID(), Namespace: pidNamespace(), PID: us.PID, Started: us.Started,
		Device: about.Dev, Inode: about.Ino,
	}
	if c != nil {
		d.Cgroup = c.dir
	}
	return d, nil
}

// bootID is another one each time that the machine starts; "" if it is not known.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // then it is not known
	return string(bytes.TrimSpace(id))
}

// pidNamespace is the number of the namespace of our process ids; 0 if it is not known.
func pidNamespace() uint64 {
	var about unix.Stat_t
	_ = unix.Stat("/proc/self/ns/pid", &about) // then it is not known
	return about.Ino
}

// newRecord makes the record of this server.
func newRecord(dir string, t proctree.LineageTag, c *cgroups) (_ *record, err error) {
	r := &record{tag: t, path: filepath.Join(dir, t.String())}
	if c != nil {
		r.cgroup = c.dir
	}
	// It gets its name when it is locked: before, it looks like a dead one.
	r.file, err = safefile.Renew(r.path, func(file *os.File) error {
		d, err := describe(file, c)
		var text []byte
		if err == nil {
			text, err = json.Marshal(d)
		}
		if err == nil {
			_, err = file.Write(text)
		}
		if err == nil {
			err = safefile.Lock(file)
		}
		return err
	})
	if err != nil {
		return nil, err
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

// sweepDead ends what is left of servers of this home that are dead, and forgets
// records that are of no such server.
func (g *Guard) sweepDead(dir string) {
	for _, r := range unlocked(dir) {
		said, err := r.read()
		log := g.log.With(zap.String("record", r.path))
		switch {
		case err != nil:
			log.Warn("a record in the home is not that of a killed server of this home: nothing is ended for it", zap.Error(err))
		case (proctree.Process{PID: said.PID, Started: said.Started}).Lives():
			log.Error("a server lives, but the record of it is not locked: nothing is ended for it", zap.Int("pid", said.PID))
			r.file.Close()
			continue
		default:
			if left, err := g.sweep(r); len(left) > 0 || err != nil {
				r.file.Close()
				continue
			}
		}
		if err := r.remove(); err != nil {
			log.Warn("forget a killed server", zap.Error(err))
		}
	}
}

// sweep ends what is left of a dead server, and returns what it could not end; with
// an error there may be more.
func (g *Guard) sweep(r *record) (left []int, err error) {
	found, _ := proctree.OfLineage(r.tag.Has) // the sweep has the same error
	left, err = r.sweep()
	if len(found) > 0 || err != nil {
		g.log.Warn("ended what a killed server left", zap.Ints("processes", found), zap.Ints("not_ended", left), zap.Error(err))
	}
	return left, err
}

// unlocked finds the records that no server has locked. They are locked then: one
// looks at them.
func unlocked(dir string) []*record {
	entries, _ := os.ReadDir(dir) // those that it could read
	var found []*record
	for _, entry := range entries {
		t, ok := proctree.ParseLineageTag(entry.Name())
		if !ok {
			continue
		}
		r := &record{tag: t, path: filepath.Join(dir, entry.Name())}
		file, err := safefile.Open(r.path, os.O_RDONLY)
		if err != nil {
			continue
		}
		r.file = file
		info, err := file.Stat()
		if err != nil || !safefile.Ours(info) || safefile.Lock(file) != nil {
			file.Close()
			continue
		}
		if there, err := safefile.At(r.path, file); err != nil || !there {
			file.Close()
			continue
		}
		found = append(found, r)
	}
	return found
}

// read reads the record. An error says why it does not show which processes are
// those of a dead server: it may be the copy of a living server's.
func (r *record) read() (said content, err error) {
	data, err := safefile.ReadAll(r.file, maxRecord)
	if err != nil {
		return content{}, err
	}
	if err := strict.Unmarshal(data, &said, strict.IgnoreUnknown); err != nil {
		return content{}, err
	}
	here, err := describe(r.file, nil)
	switch {
	case err != nil:
		return content{}, err
	case here.Boot == "" || said.Boot != here.Boot:
		return content{}, errors.New("it was made before this start of the machine")
	case said.Device != here.Device || said.Inode != here.Inode:
		return content{}, errors.New("it is a copy")
	case said.Namespace != here.Namespace:
		return content{}, errors.New("it was made among other processes (in another container)")
	case said.Cgroup != "" && (filepath.Base(said.Cgroup) != cgroupPrefix+r.tag.String() || !filepath.IsAbs(said.Cgroup)):
		return content{}, fmt.Errorf("it names a cgroup that is not its own: %s", said.Cgroup)
	}
	r.cgroup = said.Cgroup
	return said, nil
}

// sweep ends all processes of a dead server, but for this one, and returns those
// that it could not end; with an error there may be more.
func (r *record) sweep() (left []int, err error) {
	if r.cgroup == "" {
		return proctree.EndLineage(r.tag.Has, func() {})
	}
	c := &cgroups{dir: r.cgroup, kill: openKill(r.cgroup)}
	left, err = proctree.EndLineage(r.tag.Has, func() { killBy(c.kill) })
	c.remove()
	return left, err
}
