package mcp

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"nexus.internal/protocol/mcpfile"
	"nexus.internal/protocol/safefile"
)

// Files says where servers are named. A file that does not exist names none.
type Files struct {
	Personal string // path; "" for none
	// Project is DIR/.nexus3/mcp.json of the project in DIR, out of which no link
	// is followed; "" for none. DIR is absolute, and no link leads through it.
	Project string
	// Bounds are those of the agent, which the project's file does not lead to; nil for none.
	Bounds safefile.Bounds
	// Environ has the variables that the personal file asks for with ${NAME}, as
	// NAME=VALUE. It should have no key of a provider.
	Environ []string
}

func (f Files) getenv(name string) (value string, found bool) {
	for _, variable := range f.Environ {
		if known, value, ok := strings.Cut(variable, "="); ok && known == name {
			return value, true
		}
	}
	return "", false
}

// Load reads the servers that the files name, the personal ones first, sorted by
// name. Where both have a server of one name, the personal one is it. In place of a file
// that is wrong there is one server, "personal" or "project", whose Problem names the file, the
// line, the column and the member that is wrong. It never waits for the other end of a pipe.
func Load(f Files) []Server {
	servers := f.load("personal", f.Personal, false)
	for _, s := range f.load("project", f.Project, true) {
		if !slices.ContainsFunc(servers, func(own Server) bool { return nameKey(own.Name) == nameKey(s.Name) }) {
			servers = append(servers, s)
		}
	}
	return servers
}

// load reads one of the files; one that is wrong is a server of that name.
func (f Files) load(name, path string, project bool) []Server {
	entries, err := f.parse(path, project)
	if err != nil {
		return []Server{{Name: name, Project: project, Timeout: DefaultTimeout, Problem: err.Error()}}
	}
	var servers []Server
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		servers = append(servers, newServer(entries[name], name, project, f.getenv))
	}
	return servers
}

func (f Files) parse(path string, project bool) (map[string]mcpfile.Entry, error) {
	if path == "" {
		return nil, nil
	}
	data, err := f.readBounded(path, project)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &mcpfile.Error{Path: path, Err: err}
	}
	return mcpfile.Parse(path, data, project)
}

// readBounded reads a file, out of whose project no link leads. Its errors name no path.
func (f Files) readBounded(path string, project bool) ([]byte, error) {
	data, err := f.read(path, project)
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return data, err
}

func (f Files) read(path string, project bool) ([]byte, error) {
	if !project {
		return safefile.ReadLinked(path, mcpfile.MaxSize)
	}
	dir := filepath.Dir(path)
	root, err := safefile.OpenRealRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // nothing was written
	file, err := safefile.OpenBounded(root, filepath.Join(filepath.Base(dir), filepath.Base(path)), f.Bounds)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return safefile.ReadAll(file, mcpfile.MaxSize)
}
