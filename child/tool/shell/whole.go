package shell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nexus.internal/protocol/safefile"
)

const (
	// maxFile is how much output a file keeps, in bytes.
	maxFile = 64 << 20
	// maxDir is how much the files of a directory keep together. The oldest go.
	maxDir = 256 << 20
)

// whole is a file that has all of an output, once there is more than is shown. It is for one
// goroutine.
type whole struct {
	dir  string   // "" keeps none
	most int64    // bytes of the file
	file *os.File // nil until something is saved
	lost error    // why it does not have it all
}

var errNotKept = errors.New("none is kept")

// open makes the file, which takes the place of older ones.
func (w *whole) open() error {
	if w.dir == "" {
		return errNotKept
	}
	if err := safefile.Mkdir(w.dir); err != nil {
		return err
	}
	makeRoom(w.dir, maxDir-w.most)
	var err error
	w.file, err = os.CreateTemp(w.dir, "shell-"+time.Now().UTC().Format("20060102-150405")+"-*.txt")
	return err
}

// save writes b, which stands at offset at in the output, to the file. The first makes it.
func (w *whole) save(b []byte, at int64) {
	if w.file == nil && w.lost == nil {
		w.lost = w.open()
	}
	if w.lost != nil {
		return
	}
	if at+int64(len(b)) > w.most {
		b = b[:max(0, w.most-at)]
	}
	_, w.lost = w.file.Write(b)
}

func (w *whole) close() {
	if w.file != nil {
		w.file.Close()
	}
}

// where tells where the whole output of so many bytes is.
func (w *whole) where(total int64) string {
	switch {
	case w.file == nil:
		return "not kept, so run it again with its output in a file"
	case !w.there():
		return "not kept any more, as newer ones were"
	case w.lost != nil:
		return fmt.Sprintf("%s has the beginning of all of it, then writing it failed", w.file.Name())
	case total > w.most:
		return fmt.Sprintf("%s has the first %d MiB of all of it", w.file.Name(), w.most>>20)
	}
	return w.file.Name() + " has all of it"
}

// there reports whether the file has not made room for a newer one.
func (w *whole) there() bool {
	_, err := os.Lstat(w.file.Name())
	return err == nil
}

// makeRoom removes the oldest files until the others take at most most bytes.
func makeRoom(dir string, most int64) {
	type file struct {
		name string
		size int64
		at   time.Time
	}
	var files []file
	entries, _ := os.ReadDir(dir) // nothing to remove is found
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasPrefix(e.Name(), "shell-") {
			files = append(files, file{e.Name(), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return b.at.Compare(a.at) })
	for _, f := range files {
		if most -= f.size; most < 0 {
			os.Remove(filepath.Join(dir, f.name))
		}
	}
}
