package toolenv

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/child/egress"
	"nexus.internal/child/parent"
	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/snapshot"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/child/tool/shell"
	"nexus.internal/child/tool/sleep"
	"nexus.internal/child/tool/todo"
	"nexus.internal/child/tool/web"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// Source gives tools that come and go, as those of MCP servers do. It is safe
// for concurrent use.
type Source interface{ Tools() []tool.Tool }

// Presets gives the presets of the configuration as they are now. It is safe for
// concurrent use.
type Presets interface {
	Presets() map[string]protocol.Permissions
}

// Journal saves records of the session, on the disk or not at all. It is safe for
// concurrent use.
type Journal interface {
	Commit(records ...transcript.Record) error
}

// Options says what an Env is made of.
type Options struct {
	// Cwd is the working directory, absolute.
	Cwd string
	// Permissions are what is asked for; Ceiling, whose paths lead through no
	// symbolic link, is what they cannot exceed, nil for no bound. At the start,
	// what exceeds it is left out.
	Permissions protocol.Permissions
	Ceiling     *protocol.Permissions
	// Granted is what the owner granted earlier; nil: what holds at the start. GrantedCwd is where
	// the owner had it work then; "" of a session of an earlier version.
	Granted    *protocol.Permissions
	GrantedCwd string
	// Restored says that Permissions are those that an Env held before: a
	// path in them that has become a symbolic link since is not followed.
	Restored bool
	// Presets are those of the configuration. May be nil.
	Presets Presets
	// Allowances were granted earlier in this session.
	Allowances []protocol.Allowance
	// Journal saves what is allowed for the session; nil saves nothing.
	Journal Journal
	// Todo is the data of the note that has the session's list of things to do; nil for none.
	Todo jsontext.Value
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
	// Home is a directory of the session's own: the HOME of programs, with their caches. It is
	// made when it is needed; "" keeps nothing from one program to the next.
	Home string
	// Undo is a directory for what files were before the tools changed them; "" keeps nothing.
	Undo string
	// HomeBytes is how much Home may hold; 0 means 4 GiB.
	HomeBytes uint64
	// PassEnv names variables of our environment that programs get besides the
	// usual, but for those that run unasked because they only look.
	PassEnv []string
	// ToolOutput passes on what tools put out while they run.
	ToolOutput bool
	// Timeout bounds one call, whatever time it names; 0 means the registry's default.
	Timeout time.Duration
	// Processors are those of [tool.Options].
	Processors *tool.Processors
	// AllowedPaths are those of permissions that name none, nor their preset: absolute.
	AllowedPaths []string
	// FetchAddresses are those that web_fetch may reach beside the public ones.
	FetchAddresses []netip.Prefix
	// Resolver looks up the hosts that programs may reach; nil is the system's.
	Resolver egress.Resolver
	// Log may be nil.
	Log *zap.Logger
}

// Env is where one agent works. A nil Env has no tools, no directory and no permissions.
type Env struct {
	options   Options
	ceiling   *protocol.Permissions // resolved; nil for no bound
	builtins  []builtin             // those that there always are, in their order
	registry  *tool.Registry        // without tools; those of the turns follow from it
	spill     spill
	home      home
	todo      *todo.List
	snapshots *snapshot.Store  // nil keeps nothing
	loopback  sandbox.Loopback // of the programs that have no other network
	// leftovers removes the directories for temporary files that programs had.
	leftovers *safefile.Remover
	private   permission.Private // by both of their names
	jobs      *shell.Jobs
	userHomes []string // see userHomes

	mu         sync.Mutex // guards all below
	cwd        string     // without symbolic links, like all paths here
	origin     string     // cwd when the preset became what it is
	held       protocol.Permissions
	granted    protocol.Permissions
	grantedCwd string
	allowances []protocol.Allowance
	waiting    map[*openQuestion]struct{}
	commands   commands
	started    *startedProgram // of an agent of another make; nil for none
	changes    uint64          // of cwd and held
	hosts      []string        // that programs in loopback may reach
	offered    offer           // to the last turn
	programs   programs
}

// Open looks at the directory and the permissions. The error says what is wrong
// with them.
func Open(o Options) (*Env, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	env := &Env{options: o, leftovers: safefile.NewRemover(func(err error) { o.Log.Warn("remove what a program left", zap.Error(err)) }), allowances: slices.Clone(o.Allowances), waiting: map[*openQuestion]struct{}{}, commands: commands{}, jobs: shell.NewJobs()}
	env.userHomes = userHomes()
	env.private = permission.Private{Paths: bothNames(o.Private.Paths), Except: bothNames(o.Private.Except)}
	if o.Spill != "" {
		env.spill.dir = realPath(o.Spill)
	}
	env.home = home{limit: cmp.Or(o.HomeBytes, defaultHomeBytes), discard: env.leftovers}
	if o.Undo != "" {
		env.snapshots = snapshot.New(snapshot.Options{Dir: o.Undo, Log: o.Log})
	}
	if o.Home != "" {
		env.home.dir = realPath(o.Home)
	}
	if o.Ceiling != nil {
		ceiling, err := permission.Resolve(*o.Ceiling, o.presets())
		if err != nil {
			return nil, fmt.Errorf("ceiling: %w", err)
		}
		env.ceiling = &ceiling
	}
	asked := o.Permissions
	if asked.Preset == "" && env.ceiling != nil {
		asked.Preset = rights.MinPreset(rights.Default, env.ceiling.Preset)
	}
	held, err := env.resolve(asked, !o.Restored)
	if err != nil {
		return nil, err
	}
	if env.held, err = rights.Clean(env.withinCeiling(held)); err != nil {
		return nil, fmt.Errorf("with the ceiling: %w", err)
	}
	if err := env.SetCwd(o.Cwd, protocol.WithinCeiling); err != nil {
		return nil, err
	}
	env.origin = env.cwd
	env.allowances = env.policy(env.cwd).Narrow(env.allowances, isDir) // those of an earlier version
	env.hosts = env.policy(env.cwd).Sandbox(shellName).Hosts
	if o.Granted != nil {
		restoreGrant(env, *o.Granted, o.GrantedCwd)
	}
	env.todo = todo.New(todo.Options{Journal: o.Journal, Saved: o.Todo})
	builtin := append(file.Tools(file.Options{Spaces: env, Images: o.Images}), newShellTool(env))
	builtin = append(append(builtin, jobTools(env)...), sleep.New(),
		env.todo, web.New(web.Options{Allowed: o.FetchAddresses, Images: o.Images}))
	for _, t := range append(builtin, o.Tools...) {
		env.builtins = append(env.builtins, newBuiltin(t))
	}
	env.registry = tool.NewRegistry(nil, tool.Options{Timeout: o.Timeout, Processors: o.Processors, Output: o.ToolOutput, Log: o.Log, Spill: &env.spill, Notices: env.jobs})
	return env, nil
}

func (o Options) presets() map[string]protocol.Permissions {
	if o.Presets == nil {
		return nil
	}
	return o.Presets.Presets()
}

// resolve makes what is asked for what can be held: presets by what they stand
// for, with the allowed paths of the configuration where there are no others, and paths without
// symbolic links unless they were so before.
func (env *Env) resolve(asked protocol.Permissions, follow bool) (protocol.Permissions, error) {
	if follow {
		if !env.options.namesPaths(asked) {
			asked.AllowedPaths = env.options.AllowedPaths
		}
		return Resolve(asked, env.options.presets())
	}
	return permission.Resolve(asked, env.options.presets())
}

// namesPaths reports whether what is asked for, or its preset, says what the allowed paths are, none
// among them; else the configuration does.
func (o *Options) namesPaths(asked protocol.Permissions) bool {
	return asked.AllowedPaths != nil || o.presets()[asked.Preset].AllowedPaths != nil
}

// Resolve is [permission.Resolve], and follows the symbolic links in paths.
func Resolve(asked protocol.Permissions, presets map[string]protocol.Permissions) (protocol.Permissions, error) {
	resolved, err := permission.Resolve(asked, presets)
	if err != nil {
		return protocol.Permissions{}, err
	}
	resolved = permission.Policy{Permissions: resolved}.Real(realPath).Permissions
	return permission.Resolve(resolved, nil) // in order again
}

// realPath is a path without symbolic links, or the path if that cannot be told.
func realPath(path string) string {
	if real, err := file.Real(path); err == nil {
		return real
	}
	return path
}

func bothNames(paths []string) (names []string) {
	var at file.Resolver
	for _, path := range paths {
		real, err := at.Real(path)
		if err != nil {
			real = path
		}
		names = append(names, path, real)
	}
	return names
}

func (env *Env) withinCeiling(p protocol.Permissions) protocol.Permissions {
	if env.ceiling == nil {
		return p
	}
	return rights.Intersect(p, *env.ceiling)
}

// offer is the registry of a turn and what it was made of.
type offer struct {
	registry *tool.Registry
	sourced  []tool.Tool // of Options.Sources
	changes  uint64      // Env.changes
	timeout  time.Duration
	policy   permission.Policy
	shell    bool   // whether there is that tool
	walls    string // once they were asked for
}

// Tools are those of the next turn. They are made anew only if the directory, the permissions
// or what the sources give has changed since the last turn.
func (env *Env) Tools() *tool.Registry {
	if env == nil {
		return nil
	}
	var sourced []tool.Tool
	for _, s := range env.options.Sources {
		sourced = append(sourced, s.Tools()...)
	}
	env.mu.Lock()
	last, made := env.offered, offer{sourced: sourced, changes: env.changes, timeout: env.registry.Timeout()}
	snap := &turnSnapshot{Env: env, cwd: env.cwd}
	made.policy = env.policy(snap.cwd)
	env.mu.Unlock()
	if last.registry != nil && last.changes == made.changes && last.timeout == made.timeout && slices.EqualFunc(last.sourced, sourced, sameTool) {
		return last.registry
	}
	all := slices.Clone(env.builtins)
	for _, t := range sourced {
		all = append(all, newBuiltin(t))
	}
	seen := map[string]bool{}
	var tools []tool.Tool
	for _, k := range all {
		if seen[k.name] {
			env.options.Log.Warn("a second tool of a name is left out", zap.String("tool", k.name))
			continue
		}
		seen[k.name] = true
		if offers(made.policy, k) {
			if s, ok := k.Tool.(shellTool); ok {
				env.mu.Lock()
				k.Tool, made.shell = s.told(env.shellWalls(made)), true
				env.mu.Unlock()
			}
			tools = append(tools, k.Tool)
		}
	}
	made.registry = env.registry.Replaced(tools, snap)
	env.mu.Lock()
	defer env.mu.Unlock()
	env.offered = made
	return made.registry
}

// offers reports whether a tool is any use under a policy. Those for jobs are not where none can
// be started.
func offers(p permission.Policy, k builtin) bool {
	if strings.HasPrefix(k.name, "job_") && underSame(p, "job_start").Tool("job_start", protocol.ActionExecute).Verdict == permission.Deny {
		return false
	}
	return underSame(p, k.name).Tool(k.name, k.action).Verdict != permission.Deny
}

// sameTool reports whether a and b are one tool; false where that cannot be told.
func sameTool(a, b tool.Tool) bool { return reflect.ValueOf(a).Comparable() && a == b }

// builtin is a tool with what is asked of it for each turn.
type builtin struct {
	tool.Tool
	name   string
	action protocol.Action // whatever it is called with; none if each call tells
}

func newBuiltin(t tool.Tool) builtin {
	k := builtin{Tool: t, name: t.Spec().Name, action: protocol.ActionExternal}
	if scoped, ok := t.(tool.Scoped); ok {
		// The input may be wrong, the action is the tool's.
		scope, _ := scoped.Scope([]byte("{}"))
		k.action = cmp.Or(scope.Action, protocol.ActionNone)
	}
	return k
}

// policy is what holds for a turn that works in cwd. The caller holds mu.
func (env *Env) policy(cwd string) permission.Policy {
	return permission.Policy{Permissions: env.held, Cwd: cwd, Allowances: env.allowances, Homes: env.userHomes, Private: env.private}
}

func (env *Env) currentPolicy() permission.Policy {
	env.mu.Lock()
	defer env.mu.Unlock()
	return env.policy(env.cwd)
}

// Cwd is the working directory, absolute and without symbolic links.
func (env *Env) Cwd() string { return env.Rights().Cwd }

// MayUse says why no tool whose name begins so can be used, somebody else's
// server being behind them; nil if some can.
func (env *Env) MayUse(prefix string) error {
	p := env.currentPolicy()
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

// Notices tells of jobs that have ended and of whose end the model does not know; "" for none.
func (env *Env) Notices() string {
	if env == nil {
		return ""
	}
	return env.jobs.Notices()
}

// Forget takes back all that was allowed for the session, which has ended, and what was to do
// in it, and ends its jobs.
func (env *Env) Forget() {
	env.todo.Forget()
	env.jobs.Forget()
	if err := env.snapshots.Clear(); err != nil {
		env.options.Log.Warn("remove what files were before their changes", zap.Error(err))
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	env.allowances = nil
}

// Todo is the agent's list of things to do; nil for a nil Env.
func (env *Env) Todo() *todo.List {
	if env == nil {
		return nil
	}
	return env.todo
}

// Jobs are the agent's background jobs; nil for a nil Env.
func (env *Env) Jobs() *shell.Jobs {
	if env == nil {
		return nil
	}
	return env.jobs
}

// leftoversPatience is how long Close waits for the removal of what programs left in the
// system's directory for temporary files, which nobody else removes.
const leftoversPatience = 2 * time.Second

// Close ends the jobs and their network, removes what was kept of results, and ends the removal of what programs left. No
// call may run any more.
func (env *Env) Close() error {
	env.jobs.Close()
	env.loopback.Close()
	if env.options.Temp != "" {
		_ = env.leftovers.Close(0) // the maker of Temp removes it with what is left
		return env.spill.remove()
	}
	return errors.Join(env.leftovers.Close(leftoversPatience), env.spill.remove())
}
