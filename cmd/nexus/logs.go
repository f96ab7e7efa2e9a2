package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/sessionlog"
	"nexus.internal/protocol"
)

// logsVerb is nexus logs: all its verbs look at one directory.
type logsVerb struct {
	app *cli.App
	dir string
	sessionlog.Filter
}

// logsCommand is nexus logs.
func logsCommand(app *cli.App) *cobra.Command {
	v := &logsVerb{app: app}
	cmd := &cobra.Command{
		Use:   "logs VERB",
		Short: "List, show, search and clean the logs of sessions",
		Long: "The logs of sessions, which nexus serve --log-sessions or --log-dir DIR, or logs of the configuration, lets the server write:\n" +
			"also of agents that were destroyed. No server is needed, and one may write meanwhile.",
		Args: cli.VerbsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&v.dir, "log-dir", "", "directory of the logs (default: the configuration's, else logs/sessions in the home)")
	cli.Without(cmd, "it needs no server", "port", "server", "ca", "api-key")
	cmd.AddCommand(v.listCommand(), v.showCommand(), v.searchCommand(), v.cleanCommand())
	return cmd
}

// filter adds the flags that select sessions.
func (v *logsVerb) filter(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.Agent, "agent", "", "only sessions of this agent")
	cmd.Flags().StringVar(&v.Type, "type", "", "only sessions of this type: "+strings.Join(sessionlog.Types, ", "))
	cmd.Flags().StringVar(&v.Status, "status", "", "only sessions with this status: "+strings.Join(sessionlog.Statuses, ", "))
	cli.OneOf(cmd, "type", sessionlog.Types)
	cli.OneOf(cmd, "status", sessionlog.Statuses)
}

// with opens the archive, in which the status of each session is that of now, for do.
func (v *logsVerb) with(ctx context.Context, do func(*sessionlog.Archive) error) error {
	for _, one := range []struct {
		flag, value string
		known       []string
	}{{"type", v.Type, sessionlog.Types}, {"status", v.Status, sessionlog.Statuses}} {
		if err := checkKnown(one.flag, one.value, one.known); err != nil {
			return err
		}
	}
	cfg, err := v.app.LoadConfig("")
	if err != nil {
		return err
	}
	dir := v.dir
	if dir == "" {
		dir = cfg.SessionLogsDir()
	}
	archive, err := sessionlog.Open(dir)
	if errors.Is(err, sessionlog.ErrNone) {
		return fmt.Errorf("%w: nexus serve --log-dir DIR writes some, or logs of the configuration", err)
	}
	if err != nil {
		return err
	}
	home := string(cfg.Home)
	runs, failed := inServer(ctx, home)
	if failed != nil {
		err = v.app.Eprintf("nexus: the home's server does not say which agents it has: %v\n", failed)
	}
	if failed := archive.Settle(ctx, home, sessions.New(home, nil), runs); failed != nil { // on a full disk, say
		err = errors.Join(err, v.app.Eprintf("nexus: the status of sessions may be an old one: %v\n", failed))
	}
	if err == nil {
		err = do(archive)
	}
	return errors.Join(err, archive.Close())
}

// inServer reports of an agent's name whether it is in the home's server, which may log none of it; nil if that server does not say.
func inServer(ctx context.Context, home string) (runs func(agent string) bool, err error) {
	agents, err := agentsOf(ctx, home)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, agent := range agents {
		names[agent.AgentID] = true
	}
	return func(agent string) bool { return names[agent] }, nil
}

func checkKnown(flag, value string, known []string) error {
	if value == "" || slices.Contains(known, value) {
		return nil
	}
	return cli.Usage("--%s must be one of %s, not %q", flag, strings.Join(known, ", "), value)
}

func (v *logsVerb) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sessions that are logged, the latest first",
		Args:  cli.Args(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return v.with(cmd.Context(), v.list) },
	}
	v.filter(cmd)
	return cli.Named(cmd, "sessions.#.id")
}

func (v *logsVerb) list(archive *sessionlog.Archive) error {
	all, err := archive.List(v.Filter)
	if err != nil {
		return err
	}
	if v.app.Structured() {
		return v.app.PrintValue(struct {
			Sessions []sessionlog.Session `json:"sessions"`
		}{all})
	}
	return v.print(all)
}

// print lists sessions, if there are any.
func (v *logsVerb) print(all []sessionlog.Session) error {
	if len(all) == 0 {
		return nil
	}
	rows := [][]string{{"SESSION", "AGENT", "TYPE", "STATUS", "UPDATED", "MESSAGES", "PARENT"}}
	for _, s := range all {
		rows = append(rows, []string{
			fmt.Sprint(s.ID), s.AgentID, s.Type, s.Status, s.UpdatedAt, fmt.Sprint(s.Messages), cmp.Or(protocol.Value(s.Parent), "-"),
		})
	}
	return v.app.Listing(rows)
}

func (v *logsVerb) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show SESSION",
		Short: "Print what was logged of a session: its number, or the name of an agent",
		Args:  cli.Args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.with(cmd.Context(), func(archive *sessionlog.Archive) error { return v.show(cmd.Context(), archive, args[0]) })
		},
	}
}

func (v *logsVerb) show(ctx context.Context, archive *sessionlog.Archive, name string) error {
	s, err := archive.Find(name)
	if err != nil {
		return err
	}
	if !v.app.Structured() {
		if err := v.app.Printf("%d %s (%s, %s), in %s\n", s.ID, s.AgentID, s.Type, s.Status, s.Folder); err != nil {
			return err
		}
	}
	return archive.Entries(ctx, s.ID, func(e sessionlog.Entry) error {
		if v.app.Structured() {
			return v.app.PrintValue(e)
		}
		return v.printEntry(e)
	})
}

// printEntry prints when an entry was and what it is, and its text, indented, so that no line of it looks like ours.
func (v *logsVerb) printEntry(e sessionlog.Entry) error {
	err := v.app.Printf("%s\n", heading(e))
	for line := range strings.Lines(strings.TrimRight(e.Text, "\n")) {
		err = errors.Join(err, v.app.Printf("    %s\n", strings.TrimSuffix(line, "\n")))
	}
	return err
}

// heading is when an entry was, and what it is.
func heading(e sessionlog.Entry) string {
	return strings.TrimRight(e.At+"  "+strings.ReplaceAll(e.Kind, "_", " ")+" "+e.Name, " ")
}

// maxFound is how many entries a search prints, if nobody says otherwise.
const maxFound = 50

func (v *logsVerb) searchCommand() *cobra.Command {
	var limit uint16
	cmd := &cobra.Command{
		Use:   "search WORD…",
		Short: "Print the latest entries that have all words",
		Long: "Print the latest entries that have all words, in any order. A WORD* stands for all words that begin so, and\n" +
			"an argument of several words for that phrase.",
		Args: cli.Args(1, 64),
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.with(cmd.Context(), func(archive *sessionlog.Archive) error {
				found, err := archive.Search(cmd.Context(), args, v.Filter, int(limit))
				if err == nil {
					err = v.printFound(found)
				}
				return err
			})
		},
	}
	v.filter(cmd)
	cmd.Flags().Uint16Var(&limit, "limit", maxFound, "at most this many entries (0: all)")
	return cmd
}

// printFound prints a line for each entry. It is an error if there is none.
func (v *logsVerb) printFound(found []sessionlog.Found) (err error) {
	for _, e := range found {
		if v.app.Structured() {
			err = v.app.PrintValue(e)
		} else {
			err = v.app.Printf("%4d  %s  %s  %s\n", e.Session, e.AgentID, heading(e.Entry), e.Excerpt)
		}
		if err != nil {
			return err
		}
	}
	if len(found) == 0 {
		return errors.New("no entry has all these words")
	}
	return nil
}

func (v *logsVerb) cleanCommand() *cobra.Command {
	var age string
	var dry bool
	cmd := &cobra.Command{
		Use:   "clean [--older-than AGE]",
		Short: "Remove the logs of sessions that are gone",
		Long: "Remove the logs of sessions that are destroyed or orphaned, and with --status saved of those that are saved, if\n" +
			"nothing was logged for AGE. A session whose agent is in a server stays. The session itself is not touched.",
		Args: cli.Args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			after, err := ageOf(age)
			if err != nil {
				return err
			}
			return v.with(cmd.Context(), func(archive *sessionlog.Archive) error {
				removed, err := archive.Clean(cmd.Context(), time.Now().Add(-after), v.Filter, dry)
				if err == nil {
					err = v.printRemoved(removed, dry)
				}
				return err
			})
		},
	}
	v.filter(cmd)
	cmd.Flags().StringVar(&age, "older-than", "30d", "`AGE` in days, as 30d, or as 12h or 30m")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print what would be removed")
	return cmd
}

func (v *logsVerb) printRemoved(removed []sessionlog.Session, dry bool) error {
	if v.app.Structured() {
		return v.app.PrintValue(struct {
			Removed []sessionlog.Session `json:"removed"`
			DryRun  bool                 `json:"dry_run"`
		}{append([]sessionlog.Session{}, removed...), dry})
	}
	what := "removed the logs of"
	if dry {
		what = "would remove the logs of"
	}
	if err := v.print(removed); err != nil {
		return err
	}
	return v.app.Printf("%s %s\n", what, cli.Counted(uint64(len(removed)), "session"))
}

// ageOf is a time in days, or as Go writes durations.
func ageOf(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	age, err := time.ParseDuration(text)
	if err != nil || age < 0 {
		return 0, cli.Usage("--older-than must be an age as 30d, 12h or 30m, not %q", text)
	}
	return age, nil
}
