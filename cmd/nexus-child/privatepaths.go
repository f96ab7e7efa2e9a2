package main

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nexus.internal/child/images"
	"nexus.internal/child/permission"
	"nexus.internal/child/tool/file"
	"nexus.internal/child/toolenv"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// privatePaths is what belongs to nexus itself and is none of an agent's business: whole
// homes, wherever links in them lead, the session, the directory of the model's
// socket, and more that the parent names. A working directory that stands below a home is the agent's, unless it is one
// of nexus's own.
func privatePaths(homes, more []string, cwd, session, socket string) permission.Private {
	var p permission.Private
	var at file.Resolver
	relative := func(dir, path string) (string, bool) { // from dir to path, through which no link leads, if it is dir or lies in it
		if real, err := at.Real(dir); err == nil {
			dir = real
		}
		return safefile.Below(dir, path)
	}
	inside := false // the working directory is nexus's own
	for _, home := range homes {
		work, below := relative(home, cwd)
		inside = inside || below && work == "."
		p.Paths = append(p.Paths, home)
		for _, name := range config.OwnDirs {
			own := filepath.Join(home, name)
			p.Paths = append(p.Paths, own)
			_, within := relative(own, cwd)
			inside = inside || within
		}
		// One that cannot be read holds nothing that the agent could read.
		entries, _ := safefile.ReadDir(home)
		for _, e := range entries {
			if e.Type()&os.ModeSymlink == 0 {
				continue
			}
			link := filepath.Join(home, e.Name())
			if _, working := relative(link, cwd); !working {
				p.Paths = append(p.Paths, link)
			}
		}
		if below {
			p.Except = append(p.Except, cwd, filepath.Join(home, work))
		}
	}
	if inside {
		p.Except = nil
	}
	beside := func(file string) {
		dir := filepath.Dir(file)
		if _, working := relative(dir, cwd); !working {
			p.Paths = append(p.Paths, dir)
		}
	}
	for _, path := range more {
		if _, working := relative(path, cwd); !working {
			p.Paths = append(p.Paths, path)
		}
	}
	if session != "" {
		p.Paths = append(p.Paths, session, images.Dir(session))
		beside(session)
	}
	if socket != "" {
		p.Paths = append(p.Paths, socket)
		beside(socket)
	}
	return p
}

// homes are those of nexus that are out of bounds: the agent's own, the user's default
// one, and others that are found in or above the walls, which are directories without
// symbolic links that the agent may touch. A directory of the user's that cannot be looked
// into counts as one: the agent may have taken the mode away, to give it back later.
func homes(own string, environ, walls []string) []string {
	list := []string{own}
	add := func(home string) {
		if !slices.Contains(list, home) {
			list = append(list, home)
		}
	}
	user := ""
	for _, pair := range environ {
		if value, ok := strings.CutPrefix(pair, "HOME="); ok {
			user = value // the last one counts
		}
	}
	if filepath.IsAbs(user) {
		add(safefile.ThroughNoLink(filepath.Join(user, safefile.DefaultHome)))
	}
	look := func(dir string) {
		if isHome(dir) {
			add(dir)
		}
	}
	for _, wall := range walls {
		for dir := wall; ; dir = filepath.Dir(dir) {
			look(dir)
			if dir == filepath.Dir(dir) {
				break
			}
		}
		for name, err := range directories(wall) {
			if err != nil {
				if unseen(wall, err) {
					add(wall)
				}
				break
			}
			look(filepath.Join(wall, name))
			look(filepath.Join(wall, name, safefile.DefaultHome))
		}
	}
	return list
}

// directories yields the names of those in dir, however many there are: the agent may have
// made them. An error ends them.
func directories(dir string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		file, err := safefile.OpenDir(dir)
		if err != nil {
			yield("", err)
			return
		}
		defer file.Close()
		for err == nil {
			var entries []fs.DirEntry
			entries, err = file.ReadDir(1000)
			for _, e := range entries {
				if e.IsDir() && !yield(e.Name(), nil) {
					return
				}
			}
		}
	}
}

// isHome reports whether a server has made dir its home: what it makes there at once is
// there.
func isHome(dir string) bool {
	lock, err := os.Lstat(filepath.Join(dir, "run", "lock"))
	if err != nil {
		return unseen(dir, err)
	}
	if !lock.Mode().IsRegular() {
		return false
	}
	for _, name := range []string{"sessions", "logs"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return unseen(dir, err)
		}
		if !info.IsDir() {
			return false
		}
	}
	return true
}

// unseen reports whether err says that dir cannot be looked into, but it is our user's,
// whose programs may change that.
func unseen(dir string, err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	info, err := os.Stat(dir)
	return err == nil && safefile.Ours(info)
}

// walls are the directories that an agent may touch as it starts: its working directory,
// and the allowed paths that it asks for or has saved.
func walls(f *flags, saved transcript.Settings, c *config.Config, cwd string) []string {
	list := []string{cwd}
	asked := protocol.Permissions{Preset: f.preset}
	if f.permissions != nil {
		asked = *f.permissions
	}
	if resolved, err := toolenv.Resolve(asked, c.Presets); err == nil { // else it does not start
		list = append(list, resolved.AllowedPaths...)
	}
	if saved.Permissions != nil {
		list = append(list, saved.Permissions.AllowedPaths...)
	}
	return list
}
