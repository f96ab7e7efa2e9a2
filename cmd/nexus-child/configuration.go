package main

import (
	"bytes"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

// configuration is the one that holds for this agent. A server replaces its copy of
// config.json when it reloads: the agent reads it anew when it next needs it. It is
// safe for concurrent use.
type configuration struct {
	f       *flags
	environ []string
	cwd     string // where it began: the project's file is that one's
	log     *zap.Logger

	mu      sync.Mutex // guards all below
	current *config.Config
	refused []byte // the text of a copy that could not be used, so that it is logged once
}

func newConfiguration(f *flags, environ []string, cwd string, log *zap.Logger) (*configuration, error) {
	c := &configuration{f: f, environ: environ, cwd: cwd, log: log}
	first, err := c.load()
	if err != nil {
		return nil, err
	}
	c.current = first
	return c, nil
}

// load reads all files; assemble has checked the home. An agent of a server may have written the
// project's file itself: that must not keep it from coming back.
func (c *configuration) load() (*config.Config, error) {
	if c.f.modelSocket == "" {
		return config.LoadAs(c.f.personal, c.environ, c.cwd, c.f.configs...)
	}
	loaded, err := config.LoadServed(c.f.personal, c.environ, c.cwd, c.f.configs...)
	if err == nil && loaded.LeftOut() != nil {
		c.log.Warn("left out the project's configuration", zap.Error(loaded.LeftOut()))
	}
	return loaded, err
}

func (c *configuration) Presets() map[string]protocol.Permissions { return c.now().Presets }

// now is the configuration that holds. One that a server has replaced holds from now
// on; one that cannot be read leaves the last one in force.
func (c *configuration) now() *config.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.f.personal == "" {
		return c.current
	}
	text, err := safefile.ReadLinked(c.f.personal, config.MaxFileSize)
	if err == nil && (bytes.Equal(text, c.current.Personal()) || bytes.Equal(text, c.refused)) {
		return c.current
	}
	next, err := c.load()
	if err != nil {
		c.refused = text
		c.log.Warn("the configuration was replaced and cannot be used", zap.Error(err))
		return c.current
	}
	c.current, c.refused = next, nil
	return next
}
