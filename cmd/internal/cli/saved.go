package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

func (a *App) sessionsVerb() *cobra.Command {
	var p api.ListSessionsParams
	var offset, limit uint64
	var temp bool
	cmd := a.verb("sessions [FLAGS]", "list_sessions", 0, mustRun, func(ctx context.Context, c *client.Client, _ []string) error {
		p.IncludeTemp = &temp
		return a.sessions(ctx, c, p, offset, limit)
	})
	cmd.Flags().Uint64Var(&offset, "offset", 0, "how many to pass over, the latest used first")
	cmd.Flags().Uint64Var(&limit, "limit", api.DefaultSessions, "at most this many (0: all)")
	cmd.Flags().BoolVar(&temp, "temp", false, "with those of temporary agents")
	return cmd
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

func (a *App) sessions(ctx context.Context, c *client.Client, p api.ListSessionsParams, offset, limit uint64) error {
	list, err := savedSessions(ctx, c, p, offset, limit)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(list)
	case list.Total == 0:
		return a.printf("no sessions\n")
	}
	rows := [][]string{{"SESSION", "MESSAGES", "UPDATED", "BY", "PRESET", "MODEL", "CWD", ""}}
	for _, s := range list.Sessions {
		note := s.Damaged
		if note != "" {
			note = "damaged: " + note
		}
		rows = append(rows, []string{
			s.Name, fmt.Sprint(s.MessageCount), time.UnixMilli(int64(s.UpdatedAt * 1000)).Format(time.DateTime), s.Provenance,
			cmp.Or(protocol.Value(s.PermissionLevel), "-"), cmp.Or(protocol.Value(s.Model), "-"), cmp.Or(protocol.Value(s.Cwd), "-"), note,
		})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if shown := uint64(len(list.Sessions)); shown < list.Total {
		return a.printf("%d of %d\n", shown, list.Total)
	}
	return nil
}

func (a *App) loadVerb() *cobra.Command {
	var p api.LoadSessionParams
	var last bool
	cmd := a.verb("load [SESSION] [FLAGS]", "load_session", 0, mayStart, func(ctx context.Context, c *client.Client, args []string) error {
		if p.Last = &last; len(args) == 1 {
			p.SessionName = &args[0]
		}
		if err := api.Check(p); err != nil {
			return Usage("%v", err)
		}
		return a.load(ctx, c, p)
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !last {
			return Usage("name a session, or say --last for the one that a person used last")
		}
		return MaxArgs(1)(cmd, args)
	}
	cmd.Flags().BoolVar(&last, "last", false, "the session that a person used last")
	text := map[string]**string{"as": &p.AgentID, "preset": &p.Preset, "model": &p.Model}
	cmd.Flags().String("as", "", "agent that goes on with a copy of it")
	cmd.Flags().String("preset", "", "permission level instead of the saved one: trusted or sandboxed")
	cmd.Flags().String("model", "", "model instead of the saved one")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for name, target := range text {
			if value := cmd.Flags().Lookup(name); value.Changed {
				given := value.Value.String()
				*target = &given
			}
		}
		return nil
	}
	return cmd
}

func (a *App) load(ctx context.Context, c *client.Client, p api.LoadSessionParams) error {
	loaded, err := client.Do(ctx, c, "", api.LoadSession, p)
	if kindOf(err) == api.KindAgentExists {
		err = fmt.Errorf("%s: use the agent that is there, or go on with a copy by --as and another name", err.Error())
	}
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(loaded)
	case !loaded.Restored:
		return a.printf("%s runs (%s)\n", loaded.AgentID, Counted(loaded.MessageCount, "message"))
	}
	return a.printContinued(loaded.AgentID, loaded.MessageCount, loaded.NarrowedFrom)
}

// printContinued says that an agent goes on with its saved session.
func (a *App) printContinued(agent string, messages uint64, narrowedFrom string) error {
	note := ""
	if narrowedFrom != "" {
		note = ", trusted: " + narrowedFrom + " cannot be granted over RPC"
	}
	return a.printf("continued %s (%s%s)\n", agent, Counted(messages, "message"), note)
}

func (a *App) saveVerb() *cobra.Command {
	cmd := a.verb("save AGENT [SESSION]", "save_session", 0, mustRun, func(ctx context.Context, c *client.Client, args []string) error {
		p := api.SaveSessionParams{AgentID: args[0]}
		if len(args) == 2 {
			p.SessionName = &args[1]
		}
		saved, err := client.Do(ctx, c, "", api.SaveSession, p)
		switch {
		case err != nil:
			return err
		case a.json:
			return a.printJSON(saved)
		case saved.AgentID != args[0]:
			return a.printf("saved %s, which is called so now\n", saved.AgentID)
		}
		return a.printf("saved %s\n", saved.SessionName)
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usage("usage: %s", cmd.UseLine())
		}
		return MaxArgs(2)(cmd, args)
	}
	return cmd
}

func (a *App) clone(ctx context.Context, c *client.Client, args []string) error {
	cloned, err := client.Do(ctx, c, "", api.CloneSession, api.CloneSessionParams{SrcSession: args[0], DestSession: args[1]})
	return a.done(cloned, err, "copied %s to %s\n", args[0], args[1])
}

func (a *App) rename(ctx context.Context, c *client.Client, args []string) error {
	renamed, err := client.Do(ctx, c, "", api.RenameSession, api.RenameSessionParams{OldName: args[0], NewName: args[1]})
	return a.done(renamed, err, "renamed %s to %s\n", args[0], args[1])
}

func (a *App) delete(ctx context.Context, c *client.Client, args []string) error {
	deleted, err := client.Do(ctx, c, "", api.DeleteSession, api.DeleteSessionParams{SessionName: args[0]})
	if err == nil && !deleted.Deleted {
		if a.json {
			err = a.printJSON(deleted)
		}
		return errors.Join(err, fmt.Errorf("no session %s", args[0]))
	}
	return a.done(deleted, err, "deleted %s\n", args[0])
}

// done prints what a call came to: its result as JSON, or a line for people.
func (a *App) done(result any, err error, format string, args ...any) error {
	if err == nil && a.json {
		return a.printJSON(result)
	}
	if err == nil {
		err = a.printf(format, args...)
	}
	return err
}

// importVerb needs no server: it writes where the next request to that name
// finds it.
func (a *App) importVerb() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE…", Short: "Save sessions that an earlier program kept as JSON, each under the name that it bears",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return Usage("usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.Config()
			if err != nil {
				return err
			}
			catalogue := sessions.New(string(cfg.Home))
			var errs []error
			for _, path := range args {
				errs = append(errs, a.importFile(catalogue, path))
			}
			return errors.Join(errs...)
		},
	}
}

// maxImport bounds a session that is imported, in bytes.
const maxImport = 64 << 20

func (a *App) importFile(catalogue *sessions.Catalogue, path string) error {
	file, err := os.Open(path) // whatever it is: somebody named it
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer file.Close()
	data, err := safefile.ReadAll(file, maxImport)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	imported, err := catalogue.Import(data)
	if err != nil {
		return fmt.Errorf("import %s: %w", path, err)
	}
	return a.done(imported, nil, "imported %s (%s, %s)\n", imported.Name, Counted(imported.Messages, "message"), imported.Preset)
}
