package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nexus.internal/child/toolenv"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// maxLooked bounds the entries of a directory that are looked at for homes.
const maxLooked = 1000

// homes are those of nexus that are out of bounds: the agent's own, the user's default
// one, and others that are found in or above the walls, which are directories without
// symbolic links that the agent may touch.
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
		add(config.ThroughNoLink(filepath.Join(user, config.DefaultHome)))
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
		for _, name := range directories(wall) {
			look(filepath.Join(wall, name))
			look(filepath.Join(wall, name, config.DefaultHome))
		}
	}
	return list
}

// directories are the names of those in dir, among its first entries.
func directories(dir string) (names []string) {
	file, err := os.Open(dir)
	if err != nil {
		return nil // the agent cannot look for one either
	}
	defer file.Close()
	entries, _ := file.ReadDir(maxLooked)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// isHome reports whether a server has made dir its home: what it makes there at once is
// there.
func isHome(dir string) bool {
	lock, err := os.Lstat(filepath.Join(dir, "run", "lock"))
	if err != nil || !lock.Mode().IsRegular() {
		return false
	}
	for _, name := range []string{"sessions", "logs"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
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
