package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/safefile"
)

// listSessions is the verb that lists the saved sessions.
type listSessions struct {
	offset, limit uint64
	temp          bool
}

func (v *listSessions) flags(f *pflag.FlagSet) {
	f.Uint64Var(&v.offset, "offset", 0, "number of sessions to skip, the latest used first")
	f.Uint64Var(&v.limit, "limit", api.DefaultSessions, "at most this many (0: all)")
	f.BoolVar(&v.temp, "temp", false, "include those of temporary agents, and unnamed ones")
}

func (v *listSessions) run(ctx context.Context, a *App, c *client.Client, _ []string) error {
	list, err := savedSessions(ctx, c, api.ListSessionsParams{IncludeTemp: &v.temp}, v.offset, v.limit)
	if err != nil {
		return err
	}
	a.NoteUnreached(list.UnreachableNodes)
	switch {
	case a.Structured():
		return a.PrintValue(list)
	case list.Total == 0:
		return a.Printf("no sessions\n")
	}
	rows := [][]string{{"SESSION", "MESSAGES", "UPDATED", "BY", "PRESET", "MODEL", "CWD", ""}}
	for _, s := range list.Sessions {
		note := s.Damaged
		if note != "" {
			note = "damaged: " + note
		}
		rows = append(rows, []string{
			s.Name, fmt.Sprint(s.MessageCount), moment(time.UnixMilli(int64(s.UpdatedAt * 1000))), s.Provenance,
			orDash(s.PermissionLevel), orDash(MadeBy(s.Kind, s.Model)), orDash(s.Cwd), note,
		})
	}
	if err := a.Listing(rows); err != nil {
		return err
	}
	if shown := uint64(len(list.Sessions)); shown < list.Total {
		return a.Printf("%d of %d\n", shown, list.Total)
	}
	return nil
}

// savedSessions puts the pages together.
func savedSessions(ctx context.Context, c *client.Client, p api.ListSessionsParams, offset, limit uint64) (list api.ListSessionsResult, err error) {
	for whole := false; !whole; {
		have := uint64(len(list.Sessions))
		page := uint64(api.MaxSessions)
		if limit > 0 {
			page = min(page, limit-have)
		}
		p.Offset, p.Limit = new(offset+have), &page
		got, err := client.Do(ctx, c, "", api.ListSessions, p)
		if err != nil {
			return list, err
		}
		got.Offset, got.Limit, got.Sessions = offset, limit, append(list.Sessions, got.Sessions...)
		whole = uint64(len(got.Sessions)) == have || uint64(len(got.Sessions)) == limit || offset+uint64(len(got.Sessions)) >= got.Total
		list = got
	}
	return list, nil
}

// load is the verb that starts an agent from a saved session.
type load struct {
	p    api.LoadSessionParams
	last bool
}

func (v *load) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.last, "last", false, "the session that a person used last")
	f.Var(optional{&v.p.AgentID}, "as", "agent that continues a copy of the session")
	f.Var(optional{&v.p.Preset}, "preset", "permission level that narrows the saved one, and never widens it: trusted or sandboxed")
	f.Var(optional{&v.p.Model}, "model", "model instead of the saved one")
	Sets(f, "as", "agent_id")
}

func (v *load) check(_ *pflag.FlagSet, args []string) error {
	switch {
	case len(args) == 0 && !v.last:
		return Usage("name a session, or say --last for the one that a person used last")
	case len(args) > 0 && v.last:
		return Usage("SESSION and --last exclude each other")
	}
	return nil
}

func (v *load) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	if v.p.Last = &v.last; len(args) == 1 {
		v.p.SessionName = &args[0]
	}
	if err := api.Check(v.p); err != nil {
		return Usage("%v", err)
	}
	loaded, err := client.Do(ctx, c, "", api.LoadSession, v.p)
	if client.KindOf(err) == api.KindAgentExists {
		err = fmt.Errorf("%s: use the agent that is there, or go on with a copy by --as and another name", err.Error())
	}
	switch {
	case err != nil:
		return err
	case a.Structured():
		return a.PrintValue(loaded)
	case !loaded.Restored:
		return a.Printf("%s runs (%s)\n", loaded.AgentID, Counted(loaded.MessageCount, "message"))
	}
	return a.tellContinued(loaded.AgentID, loaded.MessageCount, loaded.NarrowedFrom)
}

func toSave(args []string) api.SaveSessionParams {
	p := api.SaveSessionParams{AgentID: args[0]}
	if len(args) == 2 {
		p.SessionName = &args[1]
	}
	return p
}

func tellSaved(p *printer, saved api.SaveSessionResult, args []string) error {
	if saved.AgentID != args[0] {
		return p.Printf("saved %s, which is called so now\n", saved.AgentID)
	}
	return p.Printf("saved %s\n", saved.SessionName)
}

// clone copies a session; the copy of an agent that runs, runs.
func clone(ctx context.Context, a *App, c *client.Client, args []string) error {
	cloned, err := client.Do(ctx, c, "", api.CloneSession, api.CloneSessionParams{SrcSession: args[0], DestSession: args[1]})
	if err != nil {
		return err
	}
	all, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil || !slices.ContainsFunc(all.Agents, func(one api.AgentInfo) bool { return one.AgentID == args[0] && one.PID != nil }) {
		return a.done(cloned, nil, "copied %s to %s\n", args[0], args[1]) // a key for one agent, which lists none, cannot start others
	}
	if _, err := client.Do(ctx, c, "", api.CreateAgent, api.CreateAgentParams{AgentID: &args[1], IfExists: new("use")}); err != nil {
		return fmt.Errorf("copied %s to %s, but it does not start: %w", args[0], args[1], err)
	}
	return a.done(cloned, nil, "copied %s to %s, which runs\n", args[0], args[1])
}

func toRename(args []string) api.RenameSessionParams {
	return api.RenameSessionParams{OldName: args[0], NewName: args[1]}
}

func tellRenamed(p *printer, _ api.RenameSessionResult, args []string) error {
	return p.Printf("renamed %s to %s\n", args[0], args[1])
}

// deleteSession deletes a saved session. It is an error if there is none, which the method does not take for one.
func deleteSession(ctx context.Context, a *App, c *client.Client, args []string) error {
	result, err := client.Do(ctx, c, "", api.DeleteSession, api.DeleteSessionParams{SessionName: args[0]})
	if err != nil {
		return err
	}
	var missing error
	if !result.Deleted {
		missing = missingNow(ctx, c, fmt.Errorf("no session %s", args[0]))
	}
	return a.ended(result, result.Deleted, missing, "deleted %s\n", args[0])
}

// importFiles needs no server: it writes where the next request to that name
// finds it.
func importFiles(_ context.Context, a *App, args []string) error {
	cfg, err := a.LoadConfig("") // whose roles reserve names
	if err != nil {
		return err
	}
	var roleAgents []string
	for _, role := range cfg.Roles {
		roleAgents = append(roleAgents, role.AgentID)
	}
	catalogue := sessions.New(string(cfg.Home), nil)
	bar, end := a.bar(len(args), "files")
	defer end()
	var errs []error
	for i, path := range args {
		bar.At(i, line(filepath.Base(path)))
		errs = append(errs, importFile(a.printer, catalogue, path, roleAgents))
	}
	return errors.Join(errs...)
}

// maxImport bounds a session that is imported, in bytes.
const maxImport = 64 << 20

func importFile(p *printer, catalogue *sessions.Catalogue, path string, roleAgents []string) error {
	data, err := safefile.ReadNamed(path, maxImport)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	imported, err := catalogue.Import(data, roleAgents...)
	if err != nil {
		return fmt.Errorf("import %s: %w", path, err)
	}
	return p.done(imported, nil, "imported %s (%s, %s)\n", imported.Name, Counted(imported.Messages, "message"), imported.Preset)
}
