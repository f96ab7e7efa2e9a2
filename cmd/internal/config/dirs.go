package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/safefile"
)

// Home is the absolute path of nexus's own directory: $NEXUS_HOME, or .nexus3 in the
// user's home directory. Its methods are the paths of what lies in it (SPEC §2.1).
type Home string

// Path is a path inside the home.
func (h Home) Path(elem ...string) string {
	return filepath.Join(append([]string{string(h)}, elem...)...)
}

// OwnDirs are the directories in the home that are nexus's own (SPEC §2.1). No
// agent works in one.
var OwnDirs = []string{sessionsDir, runDir, logsDir, plansDir, cacheDir, clusterDir}

const (
	sessionsDir = "sessions"
	runDir      = "run"
	logsDir     = "logs"
	plansDir    = "plans"
	cacheDir    = "cache"
	workDir     = "work" // not among OwnDirs
	clusterDir  = "cluster"
)

// SessionsDir holds the conversations of named agents.
func (h Home) SessionsDir() string { return h.Path(sessionsDir) }

// RunDir holds what belongs to agents without a lasting name.
func (h Home) RunDir() string { return h.Path(runDir) }

// SocketsDir holds the model sockets of agents (SPEC §5.7).
func (h Home) SocketsDir() string { return h.Path(runDir, "sockets") }

// ScratchDir holds a directory for each process of an agent, and for each check
// of code, as long as it runs.
func (h Home) ScratchDir() string { return h.Path(runDir, "scratch") }

// LogsDir holds the server's logs.
func (h Home) LogsDir() string { return h.Path(logsDir) }

// PlansDir holds the records of plans. The writer of one makes it.
func (h Home) PlansDir() string { return h.Path(plansDir) }

// CacheDir holds what checkers keep. The runner of one makes it.
func (h Home) CacheDir() string { return h.Path(cacheDir) }

// ClusterDir holds what the machines of a cluster agree on, as this one has it. The program that keeps it makes it.
func (h Home) ClusterDir(cluster, machine string) string { return h.Path(clusterDir, cluster, machine) }

// Machine is the machine of which cluster the home's server was last one of; "" if of none. That cluster may have its agents.
func (h Home) Machine() (cluster, machine string) {
	clusters, _ := os.ReadDir(h.Path(clusterDir)) // without one it is of none
	for _, of := range clusters {
		machines, _ := os.ReadDir(h.Path(clusterDir, of.Name()))
		for _, one := range machines {
			if _, err := os.Stat(filepath.Join(h.ClusterDir(of.Name(), one.Name()), "agents")); err == nil {
				return of.Name(), one.Name()
			}
		}
	}
	return "", ""
}

// NewCwd makes an empty directory, for its owner alone (0700), in which an agent works that has lost its own: in work, in the home. It is absolute
// and without links. The agent's owner may remove it when the agent is gone.
func (h Home) NewCwd(agent string) (string, error) {
	all := h.Path(workDir)
	if err := os.MkdirAll(all, 0o700); err != nil {
		return "", fmt.Errorf("make a directory for %s: %w", agent, err)
	}
	dir, err := os.MkdirTemp(all, agent+"-")
	if err == nil {
		err = safefile.SyncDir(all)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for %s: %w", agent, err)
	}
	return filepath.Abs(dir)
}

// Owns reports whether a directory is the home itself, or in one of OwnDirs.
func (h Home) Owns(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	home, err := filepath.EvalSymlinks(string(h))
	if err != nil {
		return false
	}
	for _, own := range OwnDirs {
		if at, err := filepath.EvalSymlinks(filepath.Join(home, own)); err == nil {
			if _, in := safefile.Below(at, real); in {
				return true
			}
		}
	}
	return real == home
}

// KeyPath is the file that holds the key of the server on that port.
func (h Home) KeyPath(port int) string {
	if port == DefaultPort {
		return h.Path("server.key")
	}
	return h.Path("server-" + strconv.Itoa(port) + ".key")
}

// MakeDirs creates the home and its directories, for their owner alone (0700). It refuses
// a home that is not its user's own (safefile.CheckHome), or of a later format (homeformat.Check).
func (h Home) MakeDirs() error {
	if err := safefile.CheckHome(string(h)); err != nil {
		return err
	}
	if err := homeformat.Check(string(h)); err != nil {
		return err
	}
	for _, dir := range []string{string(h), h.SessionsDir(), h.RunDir(), h.LogsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create home: %w", err)
		}
	}
	return safefile.CheckHome(string(h)) // also where somebody else was quicker to make it
}
