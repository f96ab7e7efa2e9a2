package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultPath is the PATH of programs where we have none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is all that a program finds in its environment: what the system
// needs, what the rules name, and extra, which wins. gate is the address of its gate, "" for none.
func environment(r Rules, temp, gate string, extra []string) []string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if inherited(name, r.Inherit) {
			env[name] = value
		}
	}
	env["PATH"] = searchPath(env["PATH"], r)
	env["TERM"] = "dumb"
	env["TMPDIR"] = temp
	switch {
	case r.Home != "":
		ownHome(env, r)
	case !r.readsAll():
		env["HOME"] = temp
	}
	if gate != "" {
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
			env[name] = "http://" + gate
		}
		env["NO_PROXY"], env["no_proxy"] = noProxy, noProxy
		env["NODE_USE_ENV_PROXY"] = "1" // else fetch of Node knows no proxy
	}
	for _, kv := range extra {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// noProxy is what programs find in their own network.
const noProxy = "localhost,127.0.0.1,::1"

// caches are the variables that name the caches of programs, with the directory in CacheDir.
var caches = [][2]string{
	{"XDG_CACHE_HOME", ""},
	{"GOCACHE", "go-build"},
	{"GOMODCACHE", "go-mod"},
	{"npm_config_cache", "npm"},
	{"PIP_CACHE_DIR", "pip"},
	{"UV_CACHE_DIR", "uv"},
	{"CARGO_HOME", "cargo"},
	{"YARN_CACHE_FOLDER", "yarn"},
	{"GRADLE_USER_HOME", "gradle"},
}

// CacheDir is the directory in [Rules.Home] that has the caches, each a directory of its own.
const CacheDir = ".cache"

// settings are the variables that name what of the user's home programs go on reading where
// they read all: who commits, which registries there are, and programs that were installed there.
var settings = [][2]string{
	{"GIT_CONFIG_GLOBAL", ".gitconfig"},
	{"NPM_CONFIG_USERCONFIG", ".npmrc"},
	{"PIP_CONFIG_FILE", ".config/pip/pip.conf"},
	{"GOENV", ".config/go/env"},
	{"RUSTUP_HOME", ".rustup"},
	{"PYENV_ROOT", ".pyenv"},
	{"ASDF_DATA_DIR", ".asdf"},
}

// ownHome gives a program a home of its own. Variables that were passed on by name stay.
func ownHome(env map[string]string, r Rules) {
	add := func(name, value string) {
		if _, ok := env[name]; !ok {
			env[name] = value
		}
	}
	if user := env["HOME"]; filepath.IsAbs(user) && r.readsAll() && !r.Bare {
		for _, s := range settings {
			path := filepath.Join(user, filepath.FromSlash(s[1]))
			if _, err := os.Stat(path); err == nil {
				add(s[0], path)
			}
		}
	}
	env["HOME"] = r.Home
	for _, c := range caches {
		add(c[0], filepath.Join(r.Home, CacheDir, c[1]))
	}
}

// inherited reports whether a variable of ours is passed on.
func inherited(name string, named []string) bool {
	switch name {
	case "PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ":
		return true
	}
	if strings.HasPrefix(name, "LC_") {
		return true
	}
	return slices.Contains(named, name) && !secret(name)
}

// secret reports whether a variable is never passed on.
func secret(name string) bool {
	name = strings.ToUpper(name)
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") ||
		strings.HasPrefix(name, "NEXUS3_") || strings.HasSuffix(name, "_API_KEY")
}

// SearchPath is the PATH of programs under these rules.
func (r Rules) SearchPath() string { return searchPath(os.Getenv("PATH"), r) }

// Find returns those of names that are programs on a PATH, in their order.
func Find(path string, names []string) (found []string) {
	dirs := filepath.SplitList(path)
	for _, name := range names {
		if slices.ContainsFunc(dirs, func(dir string) bool {
			info, err := os.Stat(filepath.Join(dir, name))
			return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
		}) {
			found = append(found, name)
		}
	}
	return found
}

// searchPath leaves out what the program cannot read: a shell would stop at a
// program that it finds there and may not run.
func searchPath(path string, r Rules) string {
	if path == "" {
		path = DefaultPath
	}
	var dirs []string
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) && r.reads(filepath.Clean(dir)) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}
