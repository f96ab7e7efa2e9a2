package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	slash "path"
	"path/filepath"
	"slices"
	"strings"

	"nexus.internal/child/tool/file/glob"
)

const (
	maxVisited  = 1_000_000 // entries that one walk looks at
	maxInDir    = 50_000    // entries of one directory: more could not be sorted within 50 ms
	maxDepth    = 200       // directories within each other
	maxRules    = 128 << 10 // bytes of one .gitignore that are read
	atOnce      = 1_000     // entries read between two looks at the context
	ignoreFile  = ".gitignore"
	gitMetadata = ".git"
)

// errEnough ends a walk early; it is no failure.
var errEnough = errors.New("enough")

// walk goes through a directory tree without what .gitignore files name, and
// without .git. It follows no symbolic link.
type walk struct {
	at   *place
	only *glob.Pattern // what is looked for: directories that can have none of it are left out; nil for all
	// visit is called for each entry, in order, with its path relative to where
	// the walk began. errEnough ends the walk.
	visit func(name string, entry fs.DirEntry) error

	base    string // where the walk began, relative to the root, with slashes
	visited int
	partial bool // a bound left something out
	unread  int  // directories that could not be read
}

// scope are the rules that hold in a directory, with those of the directories
// above it.
type scope struct {
	above *scope
	dir   string // relative to the root, "." for itself
	rules glob.Rules
}

// ignores reports what the rules say of a path relative to root. The rules of
// the innermost directory that has a say count.
func (s *scope) ignores(name string, isDir bool) bool {
	for ; s != nil; s = s.above {
		relative := name
		if s.dir != "." {
			relative = strings.TrimPrefix(name, s.dir+"/")
		}
		if ignored, decided := s.rules.Match(relative, isDir); decided {
			return ignored
		}
	}
	return false
}

// run walks the place. That it is itself ignored does not count: it was asked
// for.
func (w *walk) run(ctx context.Context) error {
	base := filepath.ToSlash(w.at.name)
	w.base = base
	var above *scope
	if base != "." {
		dir := "."
		for part := range strings.SplitSeq(base, "/") {
			above = w.enter(above, dir)
			dir = slash.Join(dir, part)
		}
	}
	err := w.dir(ctx, above, base, 0)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// enter adds the rules of a directory, if it has any.
func (w *walk) enter(above *scope, dir string) *scope {
	name := slash.Join(dir, ignoreFile)
	if info, err := w.at.root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return above
	}
	f, _, err := w.at.open(name)
	if err != nil {
		w.unread++
		return above
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRules+1))
	if err != nil {
		w.unread++
	}
	if len(text) > maxRules {
		w.partial = true
		text = text[:strings.LastIndexByte(string(text[:maxRules]), '\n')+1]
	}
	return &scope{above: above, dir: dir, rules: glob.ParseRules(string(text))}
}

// dir visits what is in a directory, then goes on into its directories, each
// where its name stands in the order.
func (w *walk) dir(ctx context.Context, s *scope, dir string, depth int) error {
	entries, path, err := w.entries(ctx, dir)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && depth == 0:
		return err
	case err != nil: // it has gone since, or is not for us
		w.unread++
		return nil
	}
	if _, has := slices.BinarySearchFunc(entries, ignoreFile, byName); has {
		s = w.enter(s, dir)
	}
	for _, entry := range entries {
		name := slash.Join(dir, entry.Name())
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case entry.Name() == gitMetadata || s.ignores(name, entry.IsDir()):
			continue
		case w.at.space.check(filepath.Join(path, entry.Name()), w.at.asked, false) != nil:
			continue
		}
		relative := name
		if w.base != "." {
			relative = strings.TrimPrefix(name, w.base+"/")
		}
		if err := w.visit(relative, entry); err != nil {
			return err
		}
		if !entry.IsDir() || w.only != nil && !w.only.Below(relative) {
			continue
		}
		if depth+1 >= maxDepth {
			w.partial = true
			continue
		}
		if err := w.dir(ctx, s, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func byName(entry fs.DirEntry, name string) int { return cmp.Compare(entry.Name(), name) }

// entries are those of a directory, sorted, within the bounds, and where it is.
func (w *walk) entries(ctx context.Context, name string) (_ []fs.DirEntry, path string, _ error) {
	if w.visited >= maxVisited {
		w.partial = true
		return nil, "", nil
	}
	dir, path, err := w.at.open(name)
	if err != nil {
		return nil, "", err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return nil, "", err
	}
	if !info.IsDir() {
		return nil, "", errors.New("it is not a directory")
	}
	var all []fs.DirEntry
	for {
		some, err := dir.ReadDir(atOnce)
		all = append(all, some...)
		w.visited += len(some)
		switch {
		case ctx.Err() != nil:
			return nil, "", ctx.Err()
		case len(all) >= maxInDir || w.visited >= maxVisited:
			w.partial = true
		case err == nil:
			continue
		case !errors.Is(err, io.EOF):
			return nil, "", err
		}
		slices.SortFunc(all, func(a, b fs.DirEntry) int { return byName(a, b.Name()) })
		return all, path, nil
	}
}

// notes are the lines that say what the walk had to leave out; "" if nothing.
func (w *walk) notes() string {
	var text string
	if w.partial {
		text += "[the tree is too large or too deep to be looked at whole; ask for a part of it]\n"
	}
	if w.unread > 0 {
		text += fmt.Sprintf("[%d directories or .gitignore files could not be read]\n", w.unread)
	}
	return text
}
