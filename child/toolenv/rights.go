package toolenv

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// Rights are what an agent may do and where it works.
type Rights struct {
	Permissions protocol.Permissions // with a built-in preset, within the ceiling
	Granted     protocol.Permissions // by the owner's last word; see protocol.Bound
	GrantedCwd  string               // where the owner last had it work
	Cwd         string
	origin      string
}

// Rights are those that hold now.
func (env *Env) Rights() Rights {
	if env == nil {
		return Rights{}
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	return Rights{env.held, env.granted, env.grantedCwd, env.cwd, env.origin}
}

// Permissions are those that hold.
func (env *Env) Permissions() protocol.Permissions { return env.Rights().Permissions }

// OutOfBounds reports whether a path, absolute and without links, is blocked for the agent or for its read_file, or is nexus's own.
// It is a [safefile.Bounds].
func (env *Env) OutOfBounds(path string) bool { return env.currentPolicy().Blocks("read_file", path) }

// Ceiling is what the permissions cannot exceed, resolved; nil for no bound.
func (env *Env) Ceiling() *protocol.Permissions { return env.ceiling }

// bound is what a change may not exceed: permissions, and a directory to work in or below. Neither stands for
// the other, as the owner may replace one and leave the other: the working directory is none of the allowed
// paths, and an allowed path is no directory to move to. bounded is false if there is no bound but the ceiling.
// env.mu is held.
func (env *Env) bound(b protocol.Bound) (bound protocol.Permissions, cwd string, bounded bool, err error) {
	switch b {
	case protocol.WithinCeiling:
		return bound, "", false, nil
	case protocol.WithinGranted:
		return env.granted, env.grantedCwd, true, nil
	case protocol.WithinHeld:
		return env.held, env.cwd, true, nil
	default:
		return bound, "", false, fmt.Errorf("member \"within\" is %.64q, want held or granted", b)
	}
}

// restoreGrant takes up what was granted to an earlier process. An earlier version, which saved no cwd, had the
// directory of then among the paths: nobody can tell it from what was allowed besides, so no more paths are
// granted than are held, and no other directory than the present one.
func restoreGrant(env *Env, granted protocol.Permissions, cwd string) {
	if cwd == "" {
		cwd = env.cwd
		if granted.AllowedPaths != nil {
			granted.AllowedPaths = rights.IntersectDirs(granted.AllowedPaths, env.held.AllowedPaths)
		}
	}
	env.granted, env.grantedCwd = granted, cwd
}

// SetCwd moves to another directory, for the turns to come, which lies within b.
// On an error nothing has changed.
func (env *Env) SetCwd(dir string, b protocol.Bound) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("working directory: %q is not absolute", dir)
	}
	path, err := file.Real(dir)
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("working directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("working directory: %s is not a directory", dir)
	}
	if env.ceiling != nil {
		if err := rights.CheckCwd(*env.ceiling, path); err != nil {
			return err
		}
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	_, within, bounded, err := env.bound(b)
	if err != nil {
		return err
	}
	if bounded && !rights.Within(within, path) {
		return &BeyondError{Bound: b, What: []string{"the directory " + path}}
	}
	if env.origin != "" { // it is not the first
		if err := env.policy(env.origin).CheckMove(path); err != nil {
			return err
		}
	}
	env.cwd = path
	env.changed()
	if !bounded {
		env.granted, env.grantedCwd = env.held, path
	}
	return nil
}

// BeyondError says that a change is refused because it is beyond a bound.
type BeyondError struct {
	Bound protocol.Bound
	What  []string
}

func (e *BeyondError) Error() string {
	bound := "what this agent holds"
	if e.Bound == protocol.WithinGranted {
		bound = "what its owner granted this agent"
	}
	return "beyond " + bound + ": " + strings.Join(e.What, ", ")
}

// SetPermissions asks for other permissions within b, which hold at once, also for
// calls that wait for an approval. On an error, which says what exceeds the ceiling
// or the bound, nothing has changed.
func (env *Env) SetPermissions(asked protocol.Permissions, b protocol.Bound) error {
	resolved, err := env.resolve(asked, true)
	if err != nil {
		return err
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	bound, _, bounded, err := env.bound(b)
	if err != nil {
		return err
	}
	if bounded && !env.options.namesPaths(asked) { // nobody has asked for those of the configuration
		resolved.AllowedPaths = rights.IntersectDirs(resolved.AllowedPaths, rights.AccessiblePaths(bound))
	}
	held := env.withinCeiling(resolved)
	if over := rights.Excess(resolved, held); len(over) > 0 {
		return fmt.Errorf("this agent's ceiling does not allow %s", strings.Join(over, ", nor "))
	}
	if _, err := rights.Clean(held); err != nil { // a start would refuse what is saved
		return fmt.Errorf("with this agent's ceiling: %w", err)
	}
	if bounded {
		if over := rights.Widens(resolved, bound); len(over) > 0 {
			return &BeyondError{Bound: b, What: over}
		}
	}
	env.hold(held)
	if !bounded {
		env.granted = env.held
	}
	return nil
}

// LowerGrant bounds the grant: what the owner granted is at most p afterwards. What
// holds is not changed.
func (env *Env) LowerGrant(p protocol.Permissions) error {
	resolved, err := env.resolve(p, false)
	if err != nil {
		return err
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	granted, err := rights.Clean(rights.Intersect(env.granted, resolved))
	if err != nil {
		return fmt.Errorf("with what was granted before: %w", err)
	}
	env.granted = granted
	return nil
}

// hold makes permissions those that hold. env.mu is held.
func (env *Env) hold(p protocol.Permissions) {
	if p.Preset != env.held.Preset {
		env.origin = env.cwd
	}
	env.held = p
	env.changed()
}

// changed makes what follows from another directory or other permissions. env.mu is held.
func (env *Env) changed() {
	env.changes++
	env.cancelDecided()
	env.reviewJobs()
	env.commands.review(env)
	env.started.review(env)
	env.reviewNetwork()
}

// Return goes back to what held before a change that could not be saved.
func (env *Env) Return(before Rights) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.held, env.granted, env.grantedCwd, env.cwd, env.origin = before.Permissions, before.Granted, before.GrantedCwd, before.Cwd, before.origin
	env.changed()
}

// Narrow holds no more than both what was asked for and what held before, after a
// change of permissions that could not be saved, and the same for the grant. It reports
// whether either is less than before.
func (env *Env) Narrow(before Rights) bool {
	env.mu.Lock()
	defer env.mu.Unlock()
	narrowed := rights.Intersect(env.held, before.Permissions)
	env.origin = before.origin
	env.held = before.Permissions
	env.hold(narrowed)
	env.granted = rights.Intersect(env.granted, before.Granted)
	return rights.Widens(before.Permissions, env.held) != nil || rights.Widens(before.Granted, env.granted) != nil
}

// State tells what holds.
func (env *Env) State() protocol.PermissionState {
	p := env.currentPolicy()
	s := protocol.PermissionState{
		Level: p.Level(), DisabledTools: p.Permissions.DisabledTools, Ceiling: p.Ceiling(), Allowed: slices.Clone(p.Allowances),
		Policy: protocol.PermissionPolicy{
			Cwd:          p.Cwd,
			BlockedPaths: p.Permissions.BlockedPaths, Tools: p.Permissions.Tools,
		},
		Allowances: protocol.SessionAllowances{ExecDirs: map[string][]string{}},
	}
	if p.Level() != rights.Yolo {
		s.Policy.AllowedPaths = &p.Permissions.AllowedPaths
	}
	if p.Permissions.Network != nil {
		s.Policy.Network = &p.Permissions.Network
	}
	if p.Permissions.WritePaths != nil {
		s.Policy.WritePaths = &p.Permissions.WritePaths
	}
	a := &s.Allowances
	for _, allowed := range p.Allowances {
		switch allowed.Action {
		case protocol.ActionRead:
			a.ReadPaths = appendUnique(a.ReadPaths, allowed.Dir)
		case protocol.ActionWrite:
			a.WritePaths = appendUnique(a.WritePaths, allowed.Dir)
		case protocol.ActionExecute:
			a.ExecDirs[allowed.Tool] = appendUnique(a.ExecDirs[allowed.Tool], allowed.Dir)
		case protocol.ActionNone, protocol.ActionDelegate, protocol.ActionExternal:
			a.Tools = appendUnique(a.Tools, allowed.Tool)
		case protocol.ActionFetch: // its hosts are among Allowed alone
		}
	}
	return s
}

func appendUnique(list []string, entry string) []string {
	if slices.Contains(list, entry) {
		return list
	}
	return append(list, entry)
}
