package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"nexus.internal/protocol/safefile"
)

// Path is a path inside the home.
func (c *Config) Path(elem ...string) string {
	return filepath.Join(append([]string{c.Home}, elem...)...)
}

// OwnDirs are the directories in the home that are nexus's own (SPEC §2.1). No
// agent works in one.
var OwnDirs = []string{sessionsDir, runDir, logsDir, plansDir, cacheDir}

const (
	sessionsDir = "sessions"
	runDir      = "run"
	logsDir     = "logs"
	plansDir    = "plans"
	cacheDir    = "cache"
)

// SessionsDir holds the conversations of named agents.
func (c *Config) SessionsDir() string { return c.Path(sessionsDir) }

// RunDir holds what belongs to agents without a lasting name.
func (c *Config) RunDir() string { return c.Path(runDir) }

// SocketsDir holds the model sockets of agents (SPEC §5.7).
func (c *Config) SocketsDir() string { return c.Path(runDir, "sockets") }

// ScratchDir holds a directory for each process of an agent, and for each check
// of code, as long as it runs.
func (c *Config) ScratchDir() string { return ScratchDir(c.Home) }

// ScratchDir is [Config.ScratchDir] of a home.
func ScratchDir(home string) string { return filepath.Join(home, runDir, "scratch") }

// LogsDir holds the server's logs.
func (c *Config) LogsDir() string { return c.Path(logsDir) }

// PlansDir holds the records of plans. Whoever writes one makes it.
func (c *Config) PlansDir() string { return c.Path(plansDir) }

// CacheDir holds what checkers keep. Whoever runs one makes it.
func (c *Config) CacheDir() string { return c.Path(cacheDir) }

// KeyPath is the file that holds the key of the server on that port.
func (c *Config) KeyPath(port int) string {
	if port == DefaultPort {
		return c.Path("server.key")
	}
	return c.Path("server-" + strconv.Itoa(port) + ".key")
}

// MakeDirs creates the home and its directories, for their owner alone (0700). It refuses
// a home that is not its user's own (package owned).
func (c *Config) MakeDirs() error {
	if err := safefile.CheckHome(c.Home); err != nil {
		return err
	}
	for _, dir := range []string{c.Home, c.SessionsDir(), c.RunDir(), c.LogsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create home: %w", err)
		}
	}
	return safefile.CheckHome(c.Home) // also where somebody else was quicker to make it
}
