package toolenv

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/safefile"
)

// Space implements [file.Spaces]: what one call of a file tool may touch.
func (env *Env) Space(c tool.Call) file.Space {
	policy := c.Permit.Policy
	accessible := policy.AccessiblePaths(c.Name)
	if env.spill.dir != "" {
		accessible = append(accessible, env.spill.dir)
	}
	if env.home.dir != "" {
		accessible = append(accessible, env.home.dir)
	}
	return file.Space{Cwd: policy.Cwd, AllowedPaths: accessible, Checker: pathChecker{policy, c.Name, env}, Tool: c.Name, Snapshots: env.snapshots}
}

// pathChecker implements [file.Checker] for one call.
type pathChecker struct {
	policy permission.Policy
	tool   string // its name
	env    *Env
}

func (p pathChecker) Check(path, asked string, write bool) error {
	action := protocol.ActionRead
	if write {
		action = protocol.ActionWrite
	}
	d := p.policy.Path(p.tool, action, path)
	switch {
	case d.Verdict == permission.Allow, !write && p.env.keeps(path):
		return nil
	case absolutePath(p.policy.Cwd, asked) == path:
		return errors.New(d.Reason)
	default:
		return errors.New(leadsOut(asked))
	}
}

// keeps reports whether a path lies in what is kept for the agent: what was too long for a
// result, and the home of its programs. Its tools may read it, wherever it lies.
func (env *Env) keeps(path string) bool {
	return env.spill.contains(path) || env.home.dir != "" && rights.Within(env.home.dir, path)
}

// userHomes are the homes of the user, with and without links: that of the environment, which ~ stands
// for, and that of the system's list of users.
func userHomes() (homes []string) {
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		homes = append(homes, filepath.Clean(home))
	}
	if listed, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && filepath.IsAbs(listed.HomeDir) {
		homes = append(homes, filepath.Clean(listed.HomeDir))
	}
	return bothNames(homes)
}

// absolutePath is the path that a model wrote. One whose ~ stands for nothing is refused by the
// tool.
func absolutePath(cwd, path string) string { return filepath.Clean(wholePath(cwd, path)) }

// wholePath is absolutePath as the tools follow it: ".." goes up from where a link led.
func wholePath(cwd, path string) string {
	if expanded, err := safefile.ExpandTilde(path); err == nil {
		path = expanded
	}
	if !filepath.IsAbs(path) {
		path = cwd + string(filepath.Separator) + path
	}
	return path
}

// Open opens a regular file for reading, as read_file could without asking. Its
// errors are words for a person. The caller closes the file.
func (env *Env) Open(path string) (*os.File, os.FileInfo, error) {
	return file.Open(env.Space(tool.Call{Name: "read_file", Permit: permission.Permit{Policy: env.currentPolicy()}}), path)
}
