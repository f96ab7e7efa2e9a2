package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// LoadServed is LoadAs for an agent of a server, which uses the server's providers alone: those of the
// project's file are none of its Models. The agent may have written that file, which must keep no agent from its
// start: a file with an error is left out (LeftOut), and so is one that chooses a provider of its own.
func LoadServed(personal string, environ []string, cwd string, extra ...string) (*Config, error) {
	return load(true, personal, environ, cwd, extra)
}

// LeftOut says why the project's file is left out, and names it; nil if it is not. It is a *FileError.
func (c *Config) LeftOut() error { return c.leftOut }

// Choose is Models.Choose, but an agent of a server gets an error that names the project's file where the wish names a
// provider of that file. A model that the server's configuration lists or names as the fallback is never one of those.
func (c *Config) Choose(w Wish) (Choice, error) {
	name := w.Provider
	if prefix, _, ok := strings.Cut(w.Model, "/"); ok && name == "" && c.Models.providerOf(w.Model, "") == "" && w.Model != protocol.Value(c.Settings.FallbackModel) {
		name = prefix
	}
	if err := c.checkServer(name); err != nil {
		return Choice{}, err
	}
	return c.Models.Choose(w)
}

// Provider is Models.Provider with the error of Choose.
func (c *Config) Provider(name string) (Provider, error) {
	if err := c.checkServer(name); err != nil {
		return Provider{}, err
	}
	return c.Models.Provider(name)
}

// checkServer refuses a provider of the project's file to an agent of a server.
func (c *Config) checkServer(name string) error {
	if !c.served || !c.FromProject(name) {
		return nil
	}
	return fmt.Errorf("provider %s is a project's own, of %s, and agents of the server use the server's alone: put it into config.json in the home", name, c.project)
}

// mergeServed lays a project's file over what is known for an agent of a server, or says why it is left out.
func (c *Config) mergeServed(cwd string) error {
	path, data, err := readProject(cwd)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	c.project = path
	data = standard(data)
	f, err := c.parse(data, untrusted)
	for name := range f.Providers { // also of one that is left out: somebody may ask for them
		if !c.own[name] {
			c.own[name] = false
		}
	}
	if err == nil {
		err = c.layServed(path, f)
	}
	return fileError(path, data, err, untrusted)
}

// layServed is lay without the providers. With an error nothing is laid.
func (c *Config) layServed(path string, f file) error {
	whole := c.clone()
	whole.lay(path, f, untrusted)
	if err := whole.checkReferences(f); err != nil {
		return err
	}
	if err := whole.checkServed(f); err != nil {
		return err
	}
	f.Providers = nil
	served := c.clone()
	served.lay(path, f, untrusted)
	if f.DefaultProvider != "" || f.DefaultModel != "" {
		member := "default_model"
		if f.DefaultModel == "" {
			member = "default_provider"
		}
		if _, err := served.Models.Choose(Wish{}); err != nil {
			return &strict.Error{Path: member, Problem: "leaves an agent that names no model without one: " + err.Error()}
		}
	}
	*c = *served
	return nil
}

// checkServed refuses a choice of a provider that the project's file defines, which has been laid over the others.
func (c *Config) checkServed(f file) error {
	check := func(member string, w Wish) error {
		name := w.Provider
		if choice, err := c.Models.Choose(w); err == nil && w.Model != "" {
			name = choice.Name
		}
		if !c.FromProject(name) {
			return nil
		}
		return &strict.Error{Path: member, Problem: fmt.Sprintf("chooses the provider %q of the project, and agents of the server use the server's alone", name)}
	}
	if err := check("default_provider", Wish{Provider: f.DefaultProvider}); err != nil {
		return err
	}
	if err := check("default_model", Wish{Model: f.DefaultModel}); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.Profiles)) {
		p, member := f.Profiles[name], "profiles."+name
		if err := check(member+".provider", Wish{Provider: p.Provider}); err != nil {
			return err
		}
		if err := check(member+".model", Wish{Provider: p.Provider, Model: p.Model}); err != nil {
			return err
		}
	}
	return nil
}

// clone is a copy that can be laid over without a change of c, by a project's file.
func (c *Config) clone() *Config {
	other := *c
	other.Models.providers, other.Models.defined = maps.Clone(c.Models.providers), maps.Clone(c.Models.defined)
	other.Profiles, other.Files = maps.Clone(c.Profiles), slices.Clone(c.Files)
	other.own, other.keyNames = maps.Clone(c.own), maps.Clone(c.keyNames)
	return &other
}
