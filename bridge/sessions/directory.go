package sessions

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/transcript"
)

// directory is what is known of the sessions in a directory. Each time that somebody asks,
// the system says which files were changed since, and only these are looked at. Where it
// cannot say so, every file is. No goroutine waits for changes: they wait in the system, which
// keeps the last 16,384 of them and, if there were more, says so.
type directory struct {
	path string
	temp bool // it has the sessions of temporary agents

	mu      sync.Mutex // guards all below
	watch   *watch     // nil if the system says nothing: then nothing below holds
	is      os.FileInfo
	found   map[string]*item
	kept    []*item // of found, those that are not temp; the latest first
	besides map[string][]string
	unsure  map[string]bool // files that could not be looked at: they are the next time
	looked  int             // at how many files, for tests
}

// item is a session that was found. It is replaced and never changed.
type item struct {
	name string
	at   time.Time // when something was last written to it
	temp bool      // as of an Entry
}

func later(a, b *item) int {
	return cmp.Or(b.at.Compare(a.at), strings.Compare(a.name, b.name))
}

// items gives every session of the directory, in no order.
func (d *directory) items(c *Catalogue) ([]*item, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.update(c)
	return slices.Collect(maps.Values(d.found)), err
}

// page gives some of the sessions that are kept for good, the latest used first, and how many
// there are. What it costs does not depend on that.
func (d *directory) page(c *Catalogue, offset, limit uint64) (page []*item, total uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = d.update(c)
	return slices.Clone(cut(d.kept, offset, limit)), uint64(len(d.kept)), err
}

func cut(all []*item, offset, limit uint64) []*item {
	all = all[min(offset, uint64(len(all))):]
	return all[:min(limit, uint64(len(all)))]
}

// update looks at what has changed since it was called last.
func (d *directory) update(c *Catalogue) error {
	is, err := os.Stat(d.path)
	if err == nil && d.watch != nil && os.SameFile(d.is, is) {
		if files, ok := d.watch.changed(); ok {
			d.refresh(c, files)
			return nil
		}
	}
	d.watch, d.found, d.kept = nil, nil, nil
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	watch := newWatch(d.path) // before it is read: what changes meanwhile is looked at again
	if err = cmp.Or(err, d.read(c)); err == nil {
		d.is, d.watch = is, watch
	}
	return err
}

// read looks at every file.
func (d *directory) read(c *Catalogue) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	d.found, d.besides, d.unsure = map[string]*item{}, map[string][]string{}, map[string]bool{}
	var names []string
	for _, entry := range entries {
		file := entry.Name()
		if id, _, _ := strings.Cut(file, "."); transcript.IsSessionID(id) {
			d.besides[id] = append(d.besides[id], file)
		}
		if name, ok := strings.CutSuffix(file, suffix); ok && entry.Type().IsRegular() {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if it := d.look(c, name); it != nil {
			d.found[name] = it
			if !it.temp {
				d.kept = append(d.kept, it)
			}
		}
	}
	slices.SortFunc(d.kept, later)
	return nil
}

// look finds the session of that name; nil if there is none. What the system refuses for the
// moment stays as it was known before, and is looked at again the next time.
func (d *directory) look(c *Catalogue, name string) *item {
	if api.IsTemp(name) != d.temp || !api.ValidAgentID(name) {
		return nil
	}
	d.looked++
	info, err := os.Lstat(filepath.Join(d.path, name+suffix))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.unsure[name+suffix] = true
		return d.found[name]
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // it is gone, not begun, or none
	}
	it := &item{name: name, at: info.ModTime(), temp: d.temp}
	if transcript.MaybeUnnamed(d.besides[name])[name] {
		unnamed, err := c.unnamed(name, info)
		if err != nil {
			d.unsure[name+suffix] = true
			unnamed = d.found[name] != nil && d.found[name].temp
		}
		it.temp = it.temp || unnamed
	}
	return it
}

// refresh looks at the sessions to which the files belong.
func (d *directory) refresh(c *Catalogue, files map[string]bool) {
	names := map[string]bool{}
	maps.Copy(files, d.unsure)
	d.unsure = map[string]bool{}
	for file := range files {
		if name, ok := strings.CutSuffix(file, suffix); ok {
			names[name] = true
		}
		if id, _, _ := strings.Cut(file, "."); transcript.IsSessionID(id) {
			names[id] = true
			d.beside(id, file)
		}
	}
	for name := range names {
		it := d.look(c, name)
		if old := d.found[name]; old != nil && !old.temp {
			at, _ := slices.BinarySearchFunc(d.kept, old, later)
			d.kept = slices.Delete(d.kept, at, at+1)
		}
		delete(d.found, name)
		if it != nil {
			d.found[name] = it
		}
		if it != nil && !it.temp {
			at, _ := slices.BinarySearchFunc(d.kept, it, later)
			d.kept = slices.Insert(d.kept, at, it)
		}
	}
}

// beside notes whether a file of a session that may be unnamed is there.
func (d *directory) beside(id, file string) {
	_, err := os.Lstat(filepath.Join(d.path, file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.unsure[file] = true
		return
	}
	there := slices.DeleteFunc(slices.Clone(d.besides[id]), func(other string) bool { return other == file })
	if err == nil {
		there = append(there, file)
	}
	d.besides[id] = there
	if len(there) == 0 {
		delete(d.besides, id)
	}
}
