package main

import (
	"os"
	"path/filepath"

	"nexus.internal/child/images"
	"nexus.internal/child/permission"
	"nexus.internal/child/tool/file"
	"nexus.internal/cmd/internal/config"
)

// privatePaths is what belongs to nexus itself and is none of an agent's business: whole
// homes, wherever links in them lead, the session, and the directory of the model's
// socket. A working directory that stands below a home is the agent's, unless it is one
// of nexus's own.
func privatePaths(homes []string, cwd, session, socket string) permission.Private {
	var p permission.Private
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
		entries, _ := os.ReadDir(home)
		for _, e := range entries {
			link := filepath.Join(home, e.Name())
			if _, working := relative(link, cwd); e.Type()&os.ModeSymlink != 0 && !working {
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

// relative is the way from dir to path, through which no link leads, if that is
// dir or lies in it.
func relative(dir, path string) (string, bool) {
	if real, err := file.Real(dir); err == nil {
		dir = real
	}
	way, err := filepath.Rel(dir, path)
	return way, err == nil && filepath.IsLocal(way)
}
