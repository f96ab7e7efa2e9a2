package mcp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Files says where servers are named. A file that does not exist names none.
type Files struct {
	Personal string // path; "" for none
	// Project is DIR/.nexus3/mcp.json of the project in DIR, out of which no link
	// is followed; "" for none.
	Project string
	// Getenv finds the variables that the personal file asks for with ${NAME}.
	// It should know no key of a provider. nil knows none.
	Getenv func(name string) (value string, found bool)
}

// Load reads the servers that the files name, the personal ones first, sorted by
// name. Where both have a server of one name, the personal one is it. The error
// is about the personal file; it names that and the member that is wrong. In
// place of a project's file that is wrong there is one server, "project", whose
// Problem says the same. It never waits for the other end of a pipe.
func Load(f Files) ([]Server, error) {
	if f.Getenv == nil {
		f.Getenv = func(string) (string, bool) { return "", false }
	}
	servers, err := loadFile(f.Personal, false, f.Getenv)
	if err != nil {
		return nil, fmt.Errorf("read %w", err)
	}
	more, err := loadFile(f.Project, true, f.Getenv)
	if err != nil {
		return append(servers, Server{Name: "project", Project: true, Timeout: DefaultTimeout, Problem: err.Error()}), nil
	}
	for _, s := range more {
		if !slices.ContainsFunc(servers, func(own Server) bool { return key(own.Name) == key(s.Name) }) {
			servers = append(servers, s)
		}
	}
	return servers, nil
}

func loadFile(path string, project bool, getenv func(string) (string, bool)) ([]Server, error) {
	if path == "" {
		return nil, nil
	}
	data, err := readBounded(path, project)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var servers []Server
	if err == nil {
		servers, err = parse(data, project, getenv)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return servers, nil
}

func readBounded(path string, project bool) ([]byte, error) {
	f, err := openFile(path, project)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, pathErr.Err // the caller names the path
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("is larger than %d bytes", maxFileSize)
	}
	return data, err
}

// openFile opens a file without waiting for the other end of a pipe. No link
// leads out of a project.
func openFile(path string, project bool) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK
	if !project {
		return os.OpenFile(path, flags, 0)
	}
	dir := filepath.Dir(path)
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // nothing was written
	return root.OpenFile(filepath.Join(filepath.Base(dir), filepath.Base(path)), flags, 0)
}
