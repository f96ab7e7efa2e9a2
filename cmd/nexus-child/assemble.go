package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"nexus.internal/child"
	"nexus.internal/child/images"
	"nexus.internal/child/journal"
	"nexus.internal/child/parent"
	"nexus.internal/child/permission"
	"nexus.internal/child/prompt"
	"nexus.internal/child/tool/agents"
	"nexus.internal/child/tool/todo"
	"nexus.internal/child/toolenv"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/notes"
	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/scenario"
	"nexus.internal/protocol/transcript"
)

// assembly is a child that is ready to serve.
type assembly struct {
	options child.Options
	closers []io.Closer
}

func (a *assembly) close() {
	for _, c := range slices.Backward(a.closers) {
		if err := c.Close(); err != nil {
			a.options.Log.Warn("close", zap.Error(err))
		}
	}
}

// assemble builds a child of the flags, the saved session and the
// configuration: what a flag says holds before what was saved, and that before
// what the configuration says. What a failed start has begun is taken back.
func assemble(f *flags, environ []string, log *zap.Logger) (_ *assembly, err error) {
	home, err := checkedHome(environ)
	if err != nil {
		return nil, err
	}
	j, state, err := openSession(f, home, log)
	if err != nil {
		return nil, err
	}
	a := &assembly{options: child.Options{
		Journal: j, State: *state, Home: home, ParentAgent: cmp.Or(f.parent, protocol.Value(state.Settings.ParentAgentID)), ASCII: f.ascii, SessionUpdates: f.updates,
		Log:    log,
		Images: images.New(images.Options{Dir: images.Dir(j.Path()), NoSync: f.durability == "os"}),
		Parent: parent.New(parent.Options{
			Approvals: parent.Approvals(f.approvals), HostCalls: f.hostCalls, Deadline: f.approvalTimeout,
		}),
	}}
	defer func() {
		if err != nil {
			a.close()
			err = errors.Join(err, j.Discard())
		}
	}()
	if n := j.Torn(); n > 0 {
		log.Warn("cut off the unfinished record of a session", zap.String("path", j.Path()), zap.Int64("bytes", n))
	}
	saved := state.Settings
	begins := saved == (transcript.Settings{})
	if begins {
		if a.options.State.Notes, err = notes.Told(home); err != nil {
			return nil, err
		}
	}
	cwd, err := workingDir(f.cwd, protocol.Value(saved.Cwd))
	if err != nil {
		return nil, err
	}
	if err := checkReturn(cwd, saved); err != nil {
		return nil, err
	}
	current, err := newConfiguration(f, environ, cwd, log)
	if err != nil {
		return nil, err
	}
	c := current.now()
	if err := f.applyProfile(c); err != nil {
		return nil, err
	}
	program, err := a.chooseModelOrProgram(f, saved, current, environ)
	if err != nil {
		return nil, err
	}
	a.options.Settings, a.options.ToolBound = f.turns(saved, c), f.toolBound(c)
	if err := a.openToolEnv(f, saved, current, cwd, privatePaths(homes(home, environ, walls(f, saved, c, cwd)), f.private, cwd, j.Path(), f.modelSocket), program != nil); err != nil {
		return nil, err
	}
	if err := a.choosePrompt(f, saved, home, cwd); err != nil { // the files of which the agent may not read all
		return nil, err
	}
	records := a.settings(f, saved)
	if begins {
		records = notes.AppendRecords(records, a.options.State.Notes)
	}
	if program != nil {
		if err := a.openProgram(program, cwd); err != nil {
			return nil, err
		}
		records = append(records, program.record(saved)...)
	}
	if err := j.Append(records...); err != nil {
		return nil, err
	}
	a.closers = append(a.closers, j)
	if f.bare() && j != nil {
		expireSessions(home, c, log)
	}
	return a, nil
}

// checkedHome is the home by environ, unless others may change it or it is of a later format.
func checkedHome(environ []string) (home string, err error) {
	if home, err = safefile.HomeOf(environ); err != nil {
		return "", err
	}
	return home, cmp.Or(safefile.CheckHome(home), homeformat.Check(home))
}

// openSession opens what is saved, or stands in for it in memory. A conversation that
// nobody asked to have saved goes on where it cannot be, with a warning.
func openSession(f *flags, home string, log *zap.Logger) (*journal.Journal, *transcript.State, error) {
	unsaved := &transcript.State{SessionID: journal.NewSessionID()}
	if f.noSession {
		return nil, unsaved, nil
	}
	dir := cmp.Or(f.sessionDir, filepath.Join(home, sessionsDir))
	makeParents(f, dir, log)
	j, state, err := journal.Open(journal.Options{
		Dir: dir, Name: f.session, Continue: f.resume, NoSync: f.durability == "os",
	})
	if err != nil && f.bare() {
		log.Warn("the conversation is not saved and cannot be continued later; --no-session turns saving off", zap.Error(err))
		return nil, unsaved, nil
	}
	return j, state, err
}

// makeParents makes the directories above one that is to be made. A server has made those
// of its agents, and they make none where its home is there no more.
func makeParents(f *flags, dir string, log *zap.Logger) {
	if f.modelSocket != "" {
		return
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		log.Warn("make a directory", zap.Error(err))
	}
}

// sessionsDir is in the home.
const sessionsDir = "sessions"

// expireSessions removes unnamed sessions that are older than the configuration wants
// them kept. The parents that begin such sessions may know no server, so their children
// remove them.
func expireSessions(home string, c *config.Config, log *zap.Logger) {
	days := c.KeepUnnamedDays
	if days == 0 {
		return
	}
	removed, err := journal.Expire(filepath.Join(home, sessionsDir), time.Now().AddDate(0, 0, -days))
	if err != nil {
		log.Warn("old unnamed sessions are not removed", zap.Error(err))
	}
	if removed > 0 {
		log.Info("removed old unnamed sessions", zap.Int("sessions", removed), zap.Int("older_than_days", days))
	}
}

// workingDir is the directory that is asked for, else the saved one, else where
// the process is: absolute and without symbolic links. A saved one that has
// become a link is refused: the agent itself might have made it one.
func workingDir(asked, saved string) (string, error) {
	dir := cmp.Or(asked, saved)
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	path, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("working directory: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("working directory: %s is not a directory", abs)
	case !utf8.ValidString(path):
		return "", fmt.Errorf("working directory: %q is not UTF-8", path)
	case asked == "" && saved != "" && path != saved:
		return "", fmt.Errorf("working directory: %s, which the session saved, leads through a symbolic link now; choose another", saved)
	}
	return path, nil
}

// checkReturn says why a session that comes back may not work in cwd: in another
// directory it could do more than before, also if where it worked is no directory any
// more.
func checkReturn(cwd string, saved transcript.Settings) error {
	was := protocol.Value(saved.Cwd)
	if was == "" || saved.Permissions == nil {
		return nil
	}
	if err := (permission.Policy{Permissions: *saved.Permissions, Cwd: was}).CheckReturn(cwd); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// applyProfile fills what the flags leave open.
func (f *flags) applyProfile(c *config.Config) error {
	if f.profile == "" {
		return nil
	}
	p, err := c.Profile(f.profile)
	if err != nil {
		return err
	}
	if f.model == "" && f.provider == "" {
		f.model, f.provider = p.Model, p.Provider
	}
	f.preset = cmp.Or(f.preset, p.Preset)
	if !f.saysSystem() {
		f.system = p.System
	}
	return nil
}

// choosePrompt settles on the system prompt. An empty one that was asked for is
// none at all, and is saved as such.
func (a *assembly) choosePrompt(f *flags, saved transcript.Settings, home, cwd string) (err error) {
	says := f.saysSystem() || f.system != "" // the profile may say it too
	switch {
	case !says && saved.SystemPrompt != nil:
		a.options.Prompt = prompt.Saved(*saved.SystemPrompt, protocol.Value(saved.SystemPromptPath))
	case says && f.system == "" && f.systemFile == "":
		a.options.Prompt = prompt.Prompt{Explicit: true}
	default:
		a.options.Prompt, err = prompt.Load(prompt.Options{System: f.system, File: f.systemFile, Home: home, Cwd: cwd, Bounds: a.options.ToolEnv})
		for _, left := range a.options.Prompt.LeftOut {
			a.options.Log.Warn("left out a file of the project", zap.Error(left))
		}
	}
	return err
}

// chooseModel settles on a model and takes the keys out of the environment.
func (a *assembly) chooseModel(f *flags, saved transcript.Settings, current *configuration) (err error) {
	m := &models{current: current, broker: brokerClient(f.modelSocket), log: a.options.Log}
	wish := config.Wish{Provider: f.provider, Model: f.model}
	if f.scenario != "" {
		if m.scenario, err = safefile.ReadNamed(f.scenario, scenario.MaxBytes); err != nil {
			return fmt.Errorf("scenario: %w", err)
		}
		wish.Scenario = true
	}
	asked := wish != (config.Wish{})
	if !asked {
		wish = config.Wish{Provider: protocol.Value(saved.Provider), Model: protocol.Value(saved.Model)}
	}
	a.options.Start, err = m.choose(wish)
	switch {
	case err != nil && !asked && saved.Model != nil:
		return fmt.Errorf("the model that the session saved: %w; choose another", err)
	case err != nil:
		return err
	}
	a.options.Models = m
	return protectKeys(current.now(), f.modelSocket != "")
}

// protectKeys takes the keys out of the environment and, if there were any or
// the child has a broker's ear, keeps other processes from reading and changing
// this one's memory.
func protectKeys(c *config.Config, brokered bool) error {
	found := brokered
	for _, name := range c.KeyNames() {
		if c.Env(name) != "" {
			found = true
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	if !found {
		return nil
	}
	if err := proctree.SetUndumpable(); err != nil {
		return fmt.Errorf("protect the key: %w", err)
	}
	return nil
}

// openToolEnv settles on what the agent may do: as the flags ask, but never
// beyond what the session saved, nor beyond the ceiling of either.
func (a *assembly) openToolEnv(f *flags, saved transcript.Settings, current *configuration, cwd string, private permission.Private, ofProgram bool) error {
	c := current.now()
	things, _ := todo.Split(a.options.State.Notes)
	o := toolenv.Options{
		Cwd: cwd, Private: private, Ceiling: saved.Ceiling, Presets: current, Allowances: a.options.State.Allowances,
		Journal: a.options.Journal, Parent: a.options.Parent, Tools: agents.New(a.options.Parent), Images: a.options.Images,
		Timeout: time.Duration(protocol.Value(a.options.Settings.ToolTimeoutS) * float64(time.Second)), Log: a.options.Log, PassEnv: f.passEnv, ToolOutput: f.toolOutput, Processors: &processors,
		AllowedPaths: c.AllowedPaths, FetchAddresses: c.FetchAddresses, HomeBytes: c.CacheBytes, Todo: things,
	}
	// Without a home that can be written, nothing that is too long is kept, and
	// programs have the system's directory for temporary files.
	makeParents(f, c.Home.ScratchDir(), a.options.Log)
	if scratch, err := safefile.MakeDir(c.Home.ScratchDir()); err != nil {
		a.options.Log.Warn("long results are not kept", zap.Error(err))
	} else {
		a.closers = append(a.closers, dirCloser{scratch})
		o.Spill, o.Temp = filepath.Join(scratch.Path(), "kept"), filepath.Join(scratch.Path(), "temp")
		o.Home, o.Undo = filepath.Join(scratch.Path(), "home"), filepath.Join(scratch.Path(), "undo")
	}
	// One that is unnamed may be of a parent that begins one for each question: their caches would
	// fill the disk until they expire. A program of another make has its conversation there.
	if session := a.options.Journal.Path(); session != "" && (a.options.Journal.Name() != "" || ofProgram) {
		beside := strings.TrimSuffix(session, filepath.Ext(session))
		o.Home, o.Undo = beside+transcript.HomeSuffix, beside+transcript.UndoSuffix
	}
	asked := f.permissions != nil || f.preset != ""
	if o.Permissions.Preset = f.preset; f.permissions != nil {
		o.Permissions = *f.permissions
	}
	if saved.Permissions != nil {
		held := *saved.Permissions
		if asked {
			var err error
			if held, err = narrowed(o.Permissions, held, c.Presets); err != nil {
				return err
			}
		}
		o.Permissions, o.Restored = held, true
		if !asked && f.cwd == "" { // else what comes of it is the owner's last word
			o.Granted, o.GrantedCwd = saved.Granted, protocol.Value(saved.GrantedCwd)
		}
	}
	if f.ceiling != nil {
		ceiling, err := toolenv.Resolve(*f.ceiling, c.Presets)
		if err != nil {
			return fmt.Errorf("--ceiling: %w", err)
		}
		if saved.Ceiling != nil {
			ceiling = rights.Intersect(ceiling, *saved.Ceiling)
		}
		o.Ceiling = &ceiling
	}
	s := &servers{}
	o.Sources = []toolenv.Source{s}
	w, err := toolenv.Open(o)
	if err != nil {
		return err
	}
	s.read(string(c.Home), cwd, w, a.options.Images, !ofProgram, a.options.Log)
	a.closers = append(a.closers, w, s)
	a.options.ToolEnv, a.options.Servers = w, s.Manager
	return nil
}

// dirCloser removes the directory of a process at its end.
type dirCloser struct{ *safefile.Dir }

func (s dirCloser) Close() error { return s.Remove() }

// narrowed is what is asked for of a session that comes back, within what it
// saved. Without a preset, what is not asked for stays as it was. To widen it is
// for set_permissions alone.
func narrowed(asked, saved protocol.Permissions, presets map[string]protocol.Permissions) (protocol.Permissions, error) {
	if asked.Preset == "" {
		asked.Preset = saved.Preset
		if asked.AllowedPaths == nil {
			asked.AllowedPaths = saved.AllowedPaths
		}
		if asked.Network == nil {
			asked.Network = saved.Network
		}
		if asked.Tools == nil {
			asked.Tools = saved.Tools
		}
	}
	resolved, err := toolenv.Resolve(asked, presets)
	if err != nil {
		return protocol.Permissions{}, err
	}
	return rights.Intersect(resolved, saved), nil
}

// settings is what differs from what was saved.
func (a *assembly) settings(f *flags, saved transcript.Settings) []transcript.Record {
	o := a.options
	now := transcript.Settings{
		Model: changed(saved.Model, o.Start.Model), Provider: changed(saved.Provider, o.Start.ProviderName),
		Cwd: changed(saved.Cwd, o.ToolEnv.Cwd()), ParentAgentID: changed(saved.ParentAgentID, o.ParentAgent),
	}
	if f.depth > 0 && (saved.Depth == nil || *saved.Depth != f.depth) {
		now.Depth = &f.depth
	}
	asked := cmp.Or(protocol.Value(saved.Approvals), string(parent.Deny))
	if f.approvals != asked && f.approvals != string(parent.Allow) { // all is never allowed anew by what was saved
		now.Approvals = &f.approvals
	}
	if f.cwdLost != "" && f.cwdLost != cmp.Or(protocol.Value(saved.CwdLost), protocol.CwdLostWait) {
		now.CwdLost = &f.cwdLost
		a.options.State.Settings.CwdLost = &f.cwdLost
	}
	if f.settings != (protocol.TurnSettings{}) {
		if said := f.settings.Over(protocol.Value(saved.Turns)); !reflect.DeepEqual(saved.Turns, &said) {
			now.Turns = &said
			a.options.State.Settings.Turns = &said
		}
	}
	if permissions := o.ToolEnv.Permissions(); !reflect.DeepEqual(saved.Permissions, &permissions) {
		now.Permissions = &permissions
	}
	held := o.ToolEnv.Rights()
	if !reflect.DeepEqual(saved.Granted, &held.Granted) {
		now.Granted = &held.Granted
	}
	now.GrantedCwd = changed(saved.GrantedCwd, held.GrantedCwd)
	if ceiling := o.ToolEnv.Ceiling(); !reflect.DeepEqual(saved.Ceiling, ceiling) {
		now.Ceiling = ceiling
	}
	if o.Prompt.Explicit {
		now.SystemPrompt = changed(saved.SystemPrompt, o.Prompt.Text)
		if saved.SystemPrompt == nil {
			now.SystemPrompt = &o.Prompt.Text // it may be empty
		}
		now.SystemPromptPath = changed(saved.SystemPromptPath, o.Prompt.Path)
	}
	if now == (transcript.Settings{}) {
		return nil
	}
	now.At = time.Now().UTC()
	return []transcript.Record{now}
}

func changed(saved *string, now string) *string {
	if protocol.Value(saved) == now {
		return nil
	}
	return &now
}
