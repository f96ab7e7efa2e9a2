package codecheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nexus.internal/protocol/rights"
)

// variable is the value of a variable of environ, "" if it has none.
func variable(environ []string, name string) string {
	value := ""
	for _, pair := range environ {
		if v, ok := strings.CutPrefix(pair, name+"="); ok {
			value = v
		}
	}
	return value
}

// find is the absolute path of a program of environ's PATH, "" if it is not
// there.
func find(program string, environ []string) string {
	for _, dir := range filepath.SplitList(variable(environ, "PATH")) {
		candidate := filepath.Join(dir, program)
		if info, err := os.Stat(candidate); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate
		}
	}
	return ""
}

// What a program may read beside itself: of the directory above its bin, of that of Go, and
// of those of rustup and pyenv. What else lies there may be anybody's: the directory above
// a bin may be a home itself, and that of cargo has the keys of registries.
var (
	besideBin = []string{"bin", "lib", "lib32", "lib64", "libexec", "include", "Cellar", "package.json", "pyvenv.cfg"}
	besideGo  = []string{"src", "pkg", "go.env", "VERSION"}
	ofRustup  = []string{"settings.toml", "toolchains"}
	ofPyenv   = []string{"bin", "libexec", "plugins", "pyenv.d", "shims", "version", "versions"}
)

// installation are the files and directories that a program was installed as, as far as its
// path, with and without links, tells, and those of rustup and pyenv in the home
// ("" for none). The system's need no mention.
func installation(program, home string) []string {
	var list []string
	// add adds what dir has of these names, if it lies in dir.
	add := func(dir string, names []string) {
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return
		}
		for _, name := range names {
			path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
			if err == nil && rights.Within(dir, path) && path != dir && !slices.Contains(list, path) {
				list = append(list, path)
			}
		}
	}
	paths := []string{program}
	if real, err := filepath.EvalSymlinks(program); err == nil && real != program {
		paths = append(paths, real)
	}
	for _, path := range paths {
		dir, name := filepath.Split(path)
		dir = filepath.Clean(dir)
		add(dir, []string{name})
		if top, _, npm := strings.Cut(dir+"/", "/node_modules/"); npm { // the programs of packages lie in other packages
			add(top, []string{"node_modules"})
		}
		if top := filepath.Dir(dir); filepath.Base(dir) == "bin" {
			add(top, besideBin)
			if _, err := os.Stat(filepath.Join(top, "pkg", "tool")); err == nil { // else a go/bin has somebody's work beside it
				add(top, besideGo)
			}
		}
	}
	if home != "" {
		add(filepath.Join(home, ".rustup"), ofRustup)
		add(filepath.Join(home, ".pyenv"), ofPyenv)
	}
	return list
}
