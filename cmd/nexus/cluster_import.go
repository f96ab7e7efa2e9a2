package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/homelock"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/safefile"
)

// clusterImport is what a machine is asked for.
type clusterImport struct {
	Home   string `json:"home"` // absolute
	Rename string `json:"rename"`
	Alone  bool   `json:"alone"`
	DryRun bool   `json:"dry_run"`
}

// clusterImported is its answer.
type clusterImported struct {
	bridge.Imported
	DryRun bool `json:"dry_run"`
	// Problem is why no more came than what is listed.
	Problem string `json:"problem,omitzero"`
}

// maxClusterImport bounds the question, in bytes.
const maxClusterImport = 64 << 10

// clusterImporter brings another home in.
type clusterImporter struct {
	front *bridge.Server
	log   *zap.Logger
}

// ServeHTTP implements [http.Handler].
func (i *clusterImporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked clusterImport
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxClusterImport))
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	release, used, err := holdHome(asked.Home, asked.Alone)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer release()
	done := clusterImported{DryRun: asked.DryRun}
	done.Imported, err = i.front.Import(r.Context(), asked.Home, agents.BringOptions{Prefix: asked.Rename, DryRun: asked.DryRun})
	if err = errors.Join(err, used()); err != nil {
		done.Problem = err.Error()
	}
	i.log.Info("a home was brought in", zap.String("home", asked.Home), zap.Int("sessions", len(done.Sessions)), zap.Int("runs", len(done.Runs)), zap.Bool("dry_run", asked.DryRun), zap.Error(err))
	if text, err = json.Marshal(done); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(text) // the client finds out that it is cut off
}

// checkImported refuses a home that has nothing saved, that another user may change, or that a later program has used. What is saved must lie in the home
// itself: where a link leads elsewhere, the lock of the home does not say whether a server uses it.
func checkImported(home string) error {
	if err := safefile.CheckHomeDir(home); err != nil {
		return err
	}
	if info, err := os.Stat(home); err == nil && !safefile.OursOrRoots(info) {
		return fmt.Errorf("%s is another user's, who could change what is read of it: %s, with nexus backup FILE --home %s, "+
			"then nexus restore FILE --home NEW as the user of the server (sudo -u '#%d' …), and import NEW", home, safefile.AsOwner(info), home, os.Geteuid())
	}
	for _, name := range []string{"sessions", "plans", "plans/tasks"} {
		path := filepath.Join(home, filepath.FromSlash(name))
		switch info, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist) && name == "sessions":
			return fmt.Errorf("%s is no home of nexus with anything saved: it has no sessions", home)
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s is no directory of the home itself, so a server may use what is there: put the directory in the place of the link", path)
		}
	}
	return cmp.Or(safefile.CheckHome(home), homeformat.Check(home))
}

// holdHome keeps servers from a home until release is called. The home is as checkImported wants it. Nothing is made there: a home without the
// file that is locked has no server, and used says of one that has come since. The home of a machine of another cluster is refused, unless alone says that it is to come all the same.
func holdHome(home string, alone bool) (release func(), used func() error, err error) {
	if err := checkImported(home); err != nil {
		return nil, nil, err
	}
	if err := checkAlone(home, alone); err != nil {
		return nil, nil, err
	}
	held, err := lockImported(home)
	if err != nil {
		return nil, nil, err
	}
	return func() { held.Close() }, func() error {
		if held != nil { // no server can have come
			return nil
		}
		server, err := homelock.Find(home)
		if err == nil && server.Runs {
			err = fmt.Errorf("a server of %s was started meanwhile, and has the same agents: stop it, by nexus-rpc --home %[1]s shutdown", home)
		}
		return err
	}, nil
}

// checkAlone refuses the home of a machine of a cluster: its agents would be in two clusters. That of this server is refused as such later on.
func checkAlone(home string, alone bool) error {
	cluster, machine := config.Home(home).Machine()
	if cluster == "" || alone {
		return nil
	}
	if server, err := homelock.Find(home); err == nil && server.Runs && server.PID == os.Getpid() {
		return nil
	}
	return fmt.Errorf("%s is the home of the machine %s of the cluster %s, which may go on with its agents: of what that cluster has, nexus cluster backup and nexus cluster restore make a home that can be imported; "+
		"say --alone if that cluster has ended, and what this home has is to come all the same", home, machine, cluster)
}

// lockImported locks a home as its server does; nil if the file is not there.
func lockImported(home string) (*os.File, error) {
	file, err := safefile.Open(homelock.Path(home), os.O_RDWR)
	if errors.Is(err, syscall.EROFS) {
		file, err = safefile.Open(homelock.Path(home), os.O_RDONLY)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock the home: %w", err)
	}
	err = homelock.Take(file)
	if errors.Is(err, safefile.ErrLocked) {
		server := homelock.Read(file)
		err = fmt.Errorf("a server uses %s: stop it first, by nexus-rpc --home %s shutdown", home, home)
		if server.PID == os.Getpid() {
			err = fmt.Errorf("%s is the home of the server that is asked, which made what was saved there the cluster's when it started", home)
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func clusterImportCommand(app *cli.App) *cobra.Command {
	var asked clusterImport
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Bring the agents of a home of a single machine into the cluster",
		Long: "Brings what is saved in the home DIR, of a server that was in no cluster and has ended, into the cluster: each session under its\n" +
			"name, with its conversation, outcomes, events, usage and limits, and the records of runs of plans. The server of --home, which is\n" +
			"a machine of the cluster, reads DIR and has the agents then. A session whose name the cluster has stays in DIR, and is listed as a\n" +
			"conflict; --rename brings it under another name. DIR stays as it is. Called again, also after a kill, the rest comes,\n" +
			"and nothing twice. Configurations, keys, notes and audit logs do not come. The exit code is 1 if something that is listed did not come.",
		Example: "  nexus cluster import ~/.nexus3 --home /srv/nexus --dry-run",
		Args:    cli.Args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			if asked.Home, err = filepath.Abs(args[0]); err == nil {
				asked.Home, err = filepath.EvalSymlinks(asked.Home)
			}
			if err != nil {
				return fmt.Errorf("import: %w", err)
			}
			return importHome(ctx, app, asked)
		},
	}
	cmd.Flags().StringVar(&asked.Rename, "rename", "", "`PREFIX` that begins the name of each session whose own name the cluster has already")
	cmd.Flags().BoolVar(&asked.Alone, "alone", false, "also from the home of a machine of a cluster, which has ended: what other machines of it have had since is not there")
	cmd.Flags().BoolVar(&asked.DryRun, "dry-run", false, "list what would come, and bring nothing")
	cli.Named(cmd, "sessions.#.agent_id")
	cli.Without(cmd, "it asks the server of the home", "port", "server", "ca", "api-key")
	return cmd
}

// importHome asks the server of the home to bring another one in, and writes what came.
func importHome(ctx context.Context, app *cli.App, asked clusterImport) error {
	home, err := app.Home()
	if err != nil {
		return err
	}
	question, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	answer, err := askMachine(ctx, home, http.MethodPost, "import", bytes.NewReader(question))
	if err != nil {
		return fmt.Errorf("import %s: %w", asked.Home, err)
	}
	defer answer.Body.Close()
	var done clusterImported
	text, err := io.ReadAll(answer.Body)
	if err == nil {
		err = json.Unmarshal(text, &done)
	}
	if err != nil {
		return fmt.Errorf("import %s: its server does not say what came, call it again: %w", asked.Home, err)
	}
	if app.Structured() {
		err = app.PrintValue(done)
	} else {
		err = importTable(app, done)
	}
	missing := 0
	for _, s := range done.Sessions {
		missing += stays(s.Outcome)
	}
	for _, r := range done.Runs {
		missing += stays(r.Outcome)
	}
	switch {
	case err != nil:
		return err
	case done.Problem != "":
		return fmt.Errorf("import %s: not all has come, call it again: %s", asked.Home, done.Problem)
	case missing > 0:
		return fmt.Errorf("import %s: %d of %d stay there", asked.Home, missing, len(done.Sessions)+len(done.Runs))
	}
	return nil
}

// stays is 1 of what does not come, and 0 of what does.
func stays(outcome string) int {
	if outcome == agents.BringConflict || outcome == agents.BringRefused {
		return 1
	}
	return 0
}

func importTable(app *cli.App, done clusterImported) error {
	if len(done.Sessions)+len(done.Runs) == 0 && done.Problem != "" {
		return nil // which is told
	}
	if len(done.Sessions)+len(done.Runs) == 0 {
		return app.Printf("nothing is saved there\n")
	}
	rows := [][]string{{"SAVED", "HERE", "MESSAGES", "OUTCOME", ""}}
	for _, s := range done.Sessions {
		rows = append(rows, []string{s.Session, s.AgentID, fmt.Sprint(s.Messages), s.Outcome, s.Reason})
	}
	for _, r := range done.Runs {
		rows = append(rows, []string{"run " + r.PlanRunID, r.PlanRunID, "-", r.Outcome, r.Reason})
	}
	return app.Listing(rows)
}
