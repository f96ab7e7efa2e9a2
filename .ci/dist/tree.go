package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file or a directory that is packed.
type entry struct {
	path  string // without a slash at its begin
	mode  fs.FileMode
	owner int    // also of the group
	from  string // the file that has what is in it; "" if text has it
	text  []byte
}

// tree is what is packed, sorted by path, with a directory before what is in it.
type tree []entry

// readTree is the tree below a directory. Of the modes of its files it takes whether they are
// programs alone, as the rest is this user's.
func readTree(root string) (all tree, err error) {
	err = filepath.WalkDir(root, func(name string, found fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		info, err := found.Info()
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(root, name)
		e := entry{path: filepath.ToSlash(inside), mode: 0o644, from: name}
		switch {
		case found.IsDir():
			e.mode, e.from = fs.ModeDir|0o755, ""
		case !info.Mode().IsRegular():
			return errors.New(name + " is no regular file")
		case info.Mode()&0o100 != 0:
			e.mode = 0o755
		}
		all = append(all, e)
		return err
	})
	return all, err
}

// below is what lies below a directory of t, with paths from there.
func (t tree) below(dir string) (all tree) {
	for _, e := range t {
		if inside, ok := strings.CutPrefix(e.path, dir+"/"); ok {
			e.path = inside
			all = append(all, e)
		}
	}
	return all
}

// sorted is t in its order, with the directories that are missing.
func (t tree) sorted() tree {
	known := map[string]bool{}
	for _, e := range t {
		known[e.path] = true
	}
	all := slices.Clone(t)
	for _, e := range t {
		for dir := path.Dir(e.path); dir != "." && !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			all = append(all, entry{path: dir, mode: fs.ModeDir | 0o755})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return all
}

// content is what is in a file.
func (e entry) content() ([]byte, error) {
	if e.from == "" {
		return e.text, nil
	}
	return os.ReadFile(e.from)
}

// writeTar writes t as a tar archive, below a directory if that is not "".
func writeTar(w io.Writer, below string, t tree, at time.Time) error {
	out := tar.NewWriter(w)
	if below != "" {
		t = append(tree{{mode: fs.ModeDir | 0o755}}, t...)
	}
	for _, e := range t {
		text, err := e.content()
		if err != nil {
			return err
		}
		head := &tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(below, e.path), Mode: int64(e.mode.Perm()), Size: int64(len(text)),
			Uid: e.owner, Gid: e.owner, ModTime: at, Format: tar.FormatUSTAR,
		}
		if e.mode&fs.ModeSticky != 0 {
			head.Mode |= 0o1000
		}
		if e.mode.IsDir() {
			head.Typeflag, head.Name = tar.TypeDir, head.Name+"/"
		}
		if err := out.WriteHeader(head); err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	return out.Close()
}

// archive writes t as a compressed archive, all of it in one directory.
func archive(w io.Writer, name string, t tree, at time.Time) error {
	out := gzip.NewWriter(w)
	return errors.Join(writeTar(out, name, t.sorted(), at), out.Close())
}
