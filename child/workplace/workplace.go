package workplace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/parent"
	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/child/tool/sleep"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// Source gives tools that come and go, as those of MCP servers do. It is safe
// for concurrent use.
type Source interface{ Tools() []tool.Tool }

// Options says what a workplace is made of.
type Options struct {
	// Cwd is the working directory, absolute.
	Cwd string
	// Permissions are what is asked for; Ceiling, whose paths lead through no
	// symbolic link, is what they cannot exceed, nil for no bound. At the start,
	// what exceeds it is left out.
	Permissions protocol.Permissions
	Ceiling     *protocol.Permissions
	// Granted is what the owner granted earlier; nil: what holds at the start.
	Granted *protocol.Permissions
	// Restored says that Permissions are those that a workplace held before: a
	// path in them that has become a symbolic link since is not followed.
	Restored bool
	// Presets gives those of the configuration; safe for concurrent use. May be nil.
	Presets func() map[string]protocol.Permissions
	// Allowances were granted earlier in this session.
	Allowances []protocol.Allowance
	// OnAllow saves a new allowance; nil saves none.
	OnAllow func(protocol.Allowance) error
	// Private is of nexus itself, with absolute paths: out of bounds under every
	// preset but yolo, neither shown nor saved nor handed on.
	Private permission.Private
	// Parent is asked where the permissions say so; nil denies.
	Parent *parent.Client
	// Tools are there beside the built-in ones, and Sources give more.
	Tools   []tool.Tool
	Sources []Source
	// Images keeps images for the model to look at; nil: it sees none.
	Images tool.Images
	// Spill is a directory of the agent's own for what is too long for a result:
	// its tools and programs may read it, also where it is private. It is made
	// when it is needed; "" keeps nothing.
	Spill string
	// Temp is a directory for the temporary directories of programs. It is made
	// when it is needed; "" means the system's.
	Temp string
	// PassEnv names variables of our environment that programs get besides the
	// usual, but for those that run unasked because they only look.
	PassEnv []string
	// Timeout bounds one call; 0 means the registry's default.
	Timeout time.Duration
	// Log may be nil.
	Log *zap.Logger
}

// Workplace is where one agent works.
type Workplace struct {
	options  Options
	ceiling  *protocol.Permissions // resolved; nil for no bound
	own      []known               // those that there always are, in their order
	registry *tool.Registry        // without tools; those of the turns follow from it
	scratch  scratch
	private  permission.Private // by both of their names

	mu         sync.Mutex // guards all below
	cwd        string     // without symbolic links, like all paths here
	origin     string     // cwd when the preset became what it is
	held       protocol.Permissions
	granted    protocol.Permissions // the directory of then is among its paths
	allowances []protocol.Allowance
	waiting    map[*question]struct{}
}

// Open looks at the directory and the permissions. The error says what is wrong
// with them.
func Open(o Options) (*Workplace, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	w := &Workplace{options: o, allowances: slices.Clone(o.Allowances), waiting: map[*question]struct{}{}}
	w.private = permission.Private{Paths: bothNames(o.Private.Paths), Except: bothNames(o.Private.Except)}
	if o.Spill != "" {
		w.scratch.dir = real(o.Spill)
	}
	if o.Ceiling != nil {
		ceiling, err := permission.Resolve(*o.Ceiling, o.presets())
		if err != nil {
			return nil, fmt.Errorf("ceiling: %w", err)
		}
		w.ceiling = &ceiling
	}
	asked := o.Permissions
	if asked.Preset == "" && w.ceiling != nil {
		asked.Preset = rights.Lower(rights.Default, w.ceiling.Preset)
	}
	held, err := w.resolve(asked, !o.Restored)
	if err != nil {
		return nil, err
	}
	w.held = w.bounded(held)
	if err := w.SetCwd(o.Cwd, protocol.WithinCeiling); err != nil {
		return nil, err
	}
	w.origin = w.cwd
	if o.Granted != nil {
		w.granted = *o.Granted
	}
	builtin := append(file.Tools(file.Options{Space: w.space, Images: o.Images}), newCommand(w), sleep.New())
	for _, t := range append(builtin, o.Tools...) {
		w.own = append(w.own, know(t))
	}
	w.registry = tool.NewRegistry(nil, tool.Options{Timeout: o.Timeout, Log: o.Log, Spill: w.scratch.spill})
	return w, nil
}

// presets are those of the configuration.
func (o Options) presets() map[string]protocol.Permissions {
	if o.Presets == nil {
		return nil
	}
	return o.Presets()
}

// resolve makes what is asked for what can be held: presets by what they stand
// for, paths without symbolic links unless they were so before.
func (w *Workplace) resolve(asked protocol.Permissions, follow bool) (protocol.Permissions, error) {
	if follow {
		return Resolve(asked, w.options.presets())
	}
	return permission.Resolve(asked, w.options.presets())
}

// Resolve is [permission.Resolve], and follows the symbolic links in paths.
func Resolve(asked protocol.Permissions, presets map[string]protocol.Permissions) (protocol.Permissions, error) {
	resolved, err := permission.Resolve(asked, presets)
	if err != nil {
		return protocol.Permissions{}, err
	}
	resolved = permission.Policy{Permissions: resolved}.Real(real).Permissions
	return permission.Resolve(resolved, nil) // in order again
}

// real is a path without symbolic links, or the path if that cannot be told.
func real(path string) string {
	if real, err := file.Real(path); err == nil {
		return real
	}
	return path
}

// bothNames are the paths, and what they are without symbolic links.
func bothNames(paths []string) (names []string) {
	for _, path := range paths {
		names = append(names, path, real(path))
	}
	return names
}

// bounded is what the ceiling leaves of it.
func (w *Workplace) bounded(p protocol.Permissions) protocol.Permissions {
	if w.ceiling == nil {
		return p
	}
	return rights.Meet(p, *w.ceiling)
}

// Tools are those of the next turn.
func (w *Workplace) Tools() *tool.Registry {
	w.mu.Lock()
	d := &desk{Workplace: w, cwd: w.cwd}
	policy := w.policy(d.cwd)
	w.mu.Unlock()
	all := slices.Clone(w.own)
	for _, s := range w.options.Sources {
		for _, t := range s.Tools() {
			all = append(all, know(t))
		}
	}
	seen := map[string]bool{}
	var tools []tool.Tool
	for _, k := range all {
		if seen[k.name] {
			w.options.Log.Warn("a second tool of a name is left out", zap.String("tool", k.name))
			continue
		}
		seen[k.name] = true
		if policy.Tool(k.name, k.action).Verdict != permission.Deny {
			tools = append(tools, k.Tool)
		}
	}
	return w.registry.Replaced(tools, d.guard)
}

// known is a tool with what is asked of it for each turn.
type known struct {
	tool.Tool
	name   string
	action protocol.Action // whatever it is called with; none if each call tells
}

func know(t tool.Tool) known {
	k := known{Tool: t, name: t.Spec().Name, action: protocol.ActionExternal}
	if scoped, ok := t.(tool.Scoped); ok {
		// The input may be wrong, the action is the tool's.
		scope, _ := scoped.Scope([]byte("{}"))
		k.action = cmp.Or(scope.Action, protocol.ActionNone)
	}
	return k
}

// policy is what holds for a turn that works in cwd. The caller holds mu.
func (w *Workplace) policy(cwd string) permission.Policy {
	return permission.Policy{Permissions: w.held, Cwd: cwd, Allowances: w.allowances, Private: w.private}
}

// now is the policy of the moment.
func (w *Workplace) now() permission.Policy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policy(w.cwd)
}

// Cwd is the working directory, absolute and without symbolic links.
func (w *Workplace) Cwd() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cwd
}

// MayUse says why no tool whose name begins so can be used, somebody else's
// server being behind them; nil if some can.
func (w *Workplace) MayUse(prefix string) error {
	p := w.now()
	decision := p.Tool("", protocol.ActionExternal)
	if decision.Verdict != permission.Deny {
		return nil
	}
	for name := range p.Permissions.Tools {
		if strings.HasPrefix(name, prefix) && p.Tool(name, protocol.ActionExternal).Verdict != permission.Deny {
			return nil
		}
	}
	return fmt.Errorf("the preset %s does not allow it, nor does a rule for one of its tools", p.Level())
}

// Held is what an agent may do and where it works.
type Held struct {
	Permissions protocol.Permissions // with a built-in preset, within the ceiling
	Granted     protocol.Permissions // by the owner's last word; see protocol.Bound
	Cwd         string
	origin      string
}

// Held is what holds now.
func (w *Workplace) Held() Held {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Held{w.held, w.granted, w.cwd, w.origin}
}

// Permissions are those that hold.
func (w *Workplace) Permissions() protocol.Permissions { return w.Held().Permissions }

// Ceiling is what the permissions cannot exceed, resolved; nil for no bound.
func (w *Workplace) Ceiling() *protocol.Permissions { return w.ceiling }

// within is what a change may not exceed; false if there is no bound but the
// ceiling. w.mu is held.
func (w *Workplace) within(b protocol.Bound) (bound protocol.Permissions, bounded bool, err error) {
	switch b {
	case protocol.WithinCeiling:
		return bound, false, nil
	case protocol.WithinGranted:
		return w.granted, true, nil
	case protocol.WithinHeld:
		return w.policy(w.cwd).Ceiling(), true, nil
	default:
		return bound, false, fmt.Errorf("member \"within\" is %.64q, want held or granted", b)
	}
}

// SetCwd moves to another directory, for the turns to come, which lies within b.
// On an error nothing has changed.
func (w *Workplace) SetCwd(dir string, b protocol.Bound) error {
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
	if w.ceiling != nil {
		if err := permission.CheckCwd(*w.ceiling, path); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	bound, bounded, err := w.within(b)
	if err != nil {
		return err
	}
	if reach := rights.Reach(bound); bounded && !rights.Holds(reach, path) {
		return &BeyondError{Bound: b, What: []string{"the directory " + path}}
	}
	if w.origin != "" { // it is not the first
		if err := w.policy(w.origin).Move(path); err != nil {
			return err
		}
	}
	w.cwd = path
	if !bounded {
		w.granted = w.policy(path).Ceiling()
	}
	w.settle()
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
func (w *Workplace) SetPermissions(asked protocol.Permissions, b protocol.Bound) error {
	resolved, err := w.resolve(asked, true)
	if err != nil {
		return err
	}
	held := w.bounded(resolved)
	if over := rights.Excess(resolved, held); len(over) > 0 {
		return fmt.Errorf("this agent's ceiling does not allow %s", strings.Join(over, ", nor "))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	bound, bounded, err := w.within(b)
	if err != nil {
		return err
	}
	if bounded {
		if over := rights.Beyond(permission.Policy{Permissions: resolved, Cwd: w.cwd}.Ceiling(), bound); len(over) > 0 {
			return &BeyondError{Bound: b, What: over}
		}
	}
	w.hold(held)
	if !bounded {
		w.granted = w.policy(w.cwd).Ceiling()
	}
	return nil
}

// LowerGrant bounds the grant: what the owner granted is at most p afterwards. What
// holds is not changed.
func (w *Workplace) LowerGrant(p protocol.Permissions) error {
	resolved, err := w.resolve(p, false)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted = rights.Meet(w.granted, resolved)
	return nil
}

// hold makes permissions those that hold. w.mu is held.
func (w *Workplace) hold(p protocol.Permissions) {
	if p.Preset != w.held.Preset {
		w.origin = w.cwd
	}
	w.held = p
	w.settle()
}

// Return goes back to what held before a change that could not be saved.
func (w *Workplace) Return(before Held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held, w.granted, w.cwd, w.origin = before.Permissions, before.Granted, before.Cwd, before.origin
	w.settle()
}

// Narrow holds no more than both what was asked for and what held before, after a
// change of permissions that could not be saved, and the same for the grant. It reports
// whether either is less than before.
func (w *Workplace) Narrow(before Held) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	narrowed := rights.Meet(w.held, before.Permissions)
	w.origin = before.origin
	w.held = before.Permissions
	w.hold(narrowed)
	w.granted = rights.Meet(w.granted, before.Granted)
	return rights.Beyond(permission.Policy{Permissions: before.Permissions, Cwd: w.cwd}.Ceiling(), w.policy(w.cwd).Ceiling()) != nil ||
		rights.Beyond(before.Granted, w.granted) != nil
}

// Forget takes back all that was allowed for the session, which has ended.
func (w *Workplace) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowances = nil
}

// Open opens a regular file for reading, as read_file could without asking. Its
// errors are words for a person. The caller closes the file.
func (w *Workplace) Open(ctx context.Context, path string) (*os.File, os.FileInfo, error) {
	return file.Open(w.space(ctx, "read_file"), path)
}

// Close removes what was kept of results. No call may run any more.
func (w *Workplace) Close() error { return w.scratch.remove() }

// space is what one call of a file tool may touch.
func (w *Workplace) space(ctx context.Context, tool string) file.Space {
	policy := w.grant(ctx).policy
	reach := policy.Reach(tool)
	if w.scratch.dir != "" {
		reach = append(reach, w.scratch.dir)
	}
	return file.Space{Cwd: policy.Cwd, Reach: reach, Check: func(path, asked string, write bool) error {
		action := protocol.ActionRead
		if write {
			action = protocol.ActionWrite
		}
		d := policy.Path(tool, action, path)
		switch {
		case d.Verdict == permission.Allow, !write && w.scratch.holds(path):
			return nil
		case absolute(policy.Cwd, asked) == path:
			return errors.New(d.Reason)
		default:
			return fmt.Errorf("%s leads out of what this agent may touch", asked)
		}
	}}
}

// absolute is a path as a model wrote it, from cwd on.
func absolute(cwd, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	return filepath.Clean(path)
}
