package config

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"

	"github.com/tailscale/hujson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

// Environment is what environ (KEY=VALUE as of os.Environ) says, with no file read:
// enough for a program that asks a server.
func Environment(environ []string) (*Config, error) {
	c := &Config{
		Models:   Models{providers: maps.Clone(vendors), defined: map[string]bool{}},
		Profiles: map[string]Profile{}, Presets: map[string]protocol.Permissions{}, Roles: map[string]Role{}, Kinds: knownKinds,
		KeepUnnamedDays: DefaultKeepUnnamedDays,
		own:             map[string]bool{}, env: map[string]string{}, keyNames: map[string]bool{"NEXUS3_API_KEY": true},
	}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			c.env[name] = value
		}
	}
	home, err := safefile.HomeOf(environ)
	if err != nil {
		return nil, err
	}
	c.Home, c.APIKey = Home(home), c.env["NEXUS3_API_KEY"]
	c.Models.providers["azure"] = c.vendor("azure")
	for name := range vendors {
		c.own[name] = true
	}
	c.noteKeys(vendors)
	return c, nil
}

// Load reads the environment and, each overriding the one before it: config.json in
// the home, .nexus3/config.json in cwd, and the extra files, which must exist. ""
// for cwd is no project. It creates nothing, and refuses a home that is not its user's own
// (safefile.CheckHome), or of a later format (homeformat.Check). An error about what a file says is a *FileError.
func Load(environ []string, cwd string, extra ...string) (*Config, error) {
	home, err := safefile.HomeOf(environ)
	if err == nil {
		err = safefile.CheckHome(home)
	}
	if err == nil {
		err = homeformat.Check(home)
	}
	if err != nil {
		return nil, err
	}
	return LoadAs("", environ, cwd, extra...)
}

// LoadAs is Load for a home that the caller has checked. The file personal, unless it is "",
// stands in the place of config.json in the home, and must exist: a server gives its agents a
// copy of what it has read.
func LoadAs(personal string, environ []string, cwd string, extra ...string) (*Config, error) {
	return load(false, personal, environ, cwd, extra)
}

// load is LoadServed or LoadAs.
func load(served bool, personal string, environ []string, cwd string, extra []string) (*Config, error) {
	c, err := Environment(environ)
	if err != nil {
		return nil, err
	}
	c.served = served
	err = c.mergePersonal(cmp.Or(personal, c.personalPath()))
	if err != nil && (personal != "" || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	return c, c.mergeOthers(cwd, extra)
}

// LoadText is LoadAs without a project, for a personal configuration that holds data and is named path.
func LoadText(path string, data []byte, environ []string) (*Config, error) {
	c, err := Environment(environ)
	if err != nil {
		return nil, err
	}
	c.personal = standard(data)
	return c, c.mergeText(path, c.personal, trusted)
}

func (c *Config) personalPath() string { return c.Home.Path("config.json") }

// Personal is the text of the personal configuration as it was read; "{}" if there is
// none.
func (c *Config) Personal() []byte {
	if c.personal == nil {
		return []byte("{}")
	}
	return c.personal
}

// mergePersonal is mergeText for the personal configuration, which is remembered.
func (c *Config) mergePersonal(path string) (err error) {
	if c.personal, err = ReadText(path); err != nil {
		return &FileError{Path: path, Err: err}
	}
	return c.mergeText(path, c.personal, trusted)
}

// ReadText reads a configuration as JSON: without what standard takes away.
func ReadText(path string) ([]byte, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	return standard(data), nil
}

// standard is a file without its comments, and without commas after last members: spaces stand in
// their places, so that the rest is where it was. What is wrong in another way stays, and is told by who reads it.
func standard(data []byte) []byte {
	if plain, err := hujson.Standardize(bytes.Clone(data)); err == nil {
		return plain
	}
	return data
}

// mergeOthers reads the files that override the personal one.
func (c *Config) mergeOthers(cwd string, extra []string) error {
	personal, project := c.personalPath(), filepath.Join(cwd, projectFile)
	switch {
	case cwd == "" || filepath.Clean(project) == filepath.Clean(personal):
	case c.served:
		c.leftOut = c.mergeServed(cwd)
	default:
		if err := c.mergeProject(cwd); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, path := range extra {
		data, err := readBounded(path)
		if err != nil {
			return &FileError{Path: path, Err: err}
		}
		if err := c.mergeText(path, data, trusted); err != nil {
			return err
		}
	}
	return nil
}

// trust says whose word a file is. A project's file comes with the project,
// from anybody: it must not decide where a person's keys are sent.
type trust bool

const (
	trusted   trust = true
	untrusted trust = false
)

// mergeProject is mergeText for the file of the project in cwd, which must belong to our
// user or root.
func (c *Config) mergeProject(cwd string) error {
	path, data, err := readProject(cwd)
	if err != nil {
		return err
	}
	return c.mergeText(path, data, untrusted)
}

// readProject reads the file of the project in cwd. The error is a *FileError.
func readProject(cwd string) (path string, data []byte, err error) {
	path = filepath.Join(cwd, projectFile)
	if data, err = withoutPath(safefile.ReadOwn(cwd, projectFile, MaxFileSize)); err != nil {
		return path, nil, &FileError{Path: path, Project: true, Err: err}
	}
	return path, data, nil
}

// mergeText lays a file that holds data over what is known. The error is a *FileError.
func (c *Config) mergeText(path string, data []byte, by trust) error {
	data = standard(data)
	f, err := c.parse(data, by)
	if err == nil {
		c.lay(path, f, by)
		err = c.checkReferences(f)
	}
	return fileError(path, data, err, by)
}

// fileError is a *FileError about a file that holds data; nil without an error.
func fileError(path string, data []byte, err error, by trust) error {
	if err == nil {
		return nil
	}
	line, column := strict.Place(data, err)
	return &FileError{Path: path, Line: line, Column: column, Project: by == untrusted, Err: err}
}

// parse reads what one file says, if it may say that.
func (c *Config) parse(data []byte, by trust) (f file, err error) {
	if err := strict.Unmarshal(data, &f, strict.RejectUnknown); err != nil {
		return f, err
	}
	for name, p := range f.Providers {
		if p.Type == "" {
			p.Type = vendors[name].Type
			f.Providers[name] = p
		}
	}
	if err := f.check(); err != nil {
		return f, err
	}
	if by == trusted {
		return f, nil
	}
	if err := c.checkProject(f); err != nil {
		return f, err
	}
	return f, f.checkPresets()
}

// lay puts a file over what is known. A provider or profile is replaced as a
// whole: half of one and half of another is nobody's choice.
func (c *Config) lay(path string, f file, by trust) {
	c.noteKeys(f.Providers)
	for name, p := range f.Providers {
		c.Models.providers[name] = c.completed(name, p)
		c.Models.defined[name] = true
	}
	for name, p := range f.Profiles {
		if by == untrusted { // how much an agent may do is not the project's to say
			p.Preset = c.Profiles[name].Preset
		}
		c.Profiles[name] = p
	}
	maps.Copy(c.Presets, expanded(f.Presets, c.env["HOME"]))
	if f.AllowedPaths != nil {
		c.AllowedPaths = besidesCwd(f.AllowedPaths, c.env["HOME"])
	}
	maps.Copy(c.Roles, f.Roles)
	if len(f.Kinds) > 0 {
		c.layKinds(f.Kinds)
	}
	c.Models.defaultModel = cmp.Or(f.DefaultModel, c.Models.defaultModel)
	c.Models.defaultProvider = cmp.Or(f.DefaultProvider, c.Models.defaultProvider)
	if f.Limits != nil {
		c.Limits = *f.Limits
	}
	if f.Server != nil {
		c.Server = *f.Server
	}
	if f.Sessions != nil {
		c.KeepUnnamedDays = f.Sessions.days()
	}
	if f.Logs != nil {
		c.Logs = *f.Logs
		c.Logs.Dir = withHome(c.Logs.Dir, c.env["HOME"])
	}
	if f.Settings != nil {
		c.Settings = *f.Settings
	}
	if f.Tools != nil {
		c.ToolTime = f.Tools.time()
		c.FetchAddresses, _ = f.Tools.fetchAddresses() // they were checked
		c.CacheBytes = protocol.Value(f.Tools.CacheBytes)
	}
	for name := range f.Providers {
		c.own[name] = by == trusted
	}
	c.Files = append(c.Files, path)
}

// noteKeys remembers which variables hold keys, also those of a provider that a
// later file replaces.
func (c *Config) noteKeys(providers map[string]Provider) {
	for _, p := range providers {
		if p.APIKeyEnv != "" {
			c.keyNames[p.APIKeyEnv] = true
		}
	}
}

func readBounded(path string) ([]byte, error) {
	return withoutPath(safefile.ReadLinked(path, MaxFileSize))
}

func withoutPath(data []byte, err error) ([]byte, error) {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return data, err
}

// FromProject reports whether a project's file was the last to say what the
// provider is. A server knows nothing of such a one.
func (c *Config) FromProject(provider string) bool {
	own, known := c.own[provider]
	return known && !own
}

// Env is one variable of the environment that Load was given; "" if unset.
func (c *Config) Env(name string) string { return c.env[name] }
