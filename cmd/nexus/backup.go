package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/homelock"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/backup"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/safefile"
)

func addBackup(app *cli.App) {
	var o backup.Options
	save := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save the home in a file, also while a server uses it",
		Long: "Saves the configuration, the saved sessions with all that belongs to them, plans, the audit log and the hashes of\n" +
			"keys in FILE, a tar.gz archive that only you can read. FILE must not exist. A server may work in the home meanwhile.",
		Args: cli.Args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return saveHome(ctx, app, args[0], o)
		},
	}
	o.Version = app.Version
	save.Flags().BoolVar(&o.NoKeys, "no-keys", false, "leave out the hashes of the keys that create_key made")
	restore := &cobra.Command{
		Use:   "restore FILE",
		Short: "Create a home from a backup",
		Long: "Creates the home of --home (default: $NEXUS_HOME, then ~/.nexus3) from a file that nexus backup wrote. The home must\n" +
			"not exist, or must be empty. A file that is damaged or cut off is refused, and nothing is left of it.",
		Args: cli.Args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return restoreHome(ctx, app, args[0])
		},
	}
	for _, cmd := range []*cobra.Command{save, restore} {
		cli.Without(cmd, "it needs no server", "port", "server", "ca", "api-key", "json", "output")
		app.Add(cmd)
	}
}

// saveHome writes a backup of the home into a new file.
func saveHome(ctx context.Context, app *cli.App, path string, o backup.Options) (err error) {
	if path == "-" {
		return cli.Usage("FILE must be a file, and a backup is not written to stdout: ./- is a file of that name")
	}
	home, err := app.Home()
	if err == nil {
		err = cmp.Or(safefile.CheckHomeDir(home), homeformat.Check(home))
	}
	if err != nil {
		return err
	}
	switch inside, err := within(path, home); {
	case err != nil:
		return fmt.Errorf("make the backup: %w", err)
	case inside:
		return cli.Usage("%s lies in the home that it is to save: choose another place", path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists, and a backup does not replace a file: nothing was written", path)
	case err != nil:
		return fmt.Errorf("make the backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if o.Narrowed, err = unsavedPermissions(ctx, home); err != nil {
		err = app.Eprintf("nexus: if the server of %s could not save a narrowing of permissions, it is not in the backup: %v\n", home, err)
		if err != nil {
			return err
		}
	}
	var report backup.Report
	for range maxTries {
		if report, err = backup.Write(ctx, file, home, o); !errors.Is(err, sessions.ErrReplaced) {
			break
		}
		if _, again := file.Seek(0, io.SeekStart); again != nil || file.Truncate(0) != nil {
			break
		}
	}
	if err == nil {
		err = errors.Join(file.Chmod(0o600), file.Sync())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if len(report.LeftOut) > 0 {
		if err := app.Eprintf("nexus: not saved, as it is not of nexus: %s\n", strings.Join(report.LeftOut, ", ")); err != nil {
			return err
		}
	}
	return app.Printf("%s: %s of %s\n", path, sizeOf(report), home)
}

// maxTries is how often a backup is begun in whose middle a session gets the name of another one.
const maxTries = 10

// unsavedPermissions asks the server of the home, if one runs, for the permissions that it could
// not save, by agent.
func unsavedPermissions(ctx context.Context, home string) (map[string]protocol.Permissions, error) {
	agents, err := agentsOf(ctx, home)
	narrowed := map[string]protocol.Permissions{}
	for _, agent := range agents {
		if agent.UnsavedPermissions != nil {
			narrowed[agent.AgentID] = *agent.UnsavedPermissions
		}
	}
	return narrowed, err
}

// homeTimeout bounds how long a verb that needs no server waits for the home's.
const homeTimeout = 10 * time.Second

// agentsOf are the agents in the server of a home, none if none runs.
func agentsOf(ctx context.Context, home string) ([]api.AgentInfo, error) {
	server, err := homelock.Find(home)
	if err != nil || !server.Runs || server.Port == 0 { // one that starts has no agents yet
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, homeTimeout)
	defer cancel()
	found, err := client.Detect(ctx, server.Port)
	if err != nil {
		return nil, err
	}
	if found.Detection != client.NexusServer {
		return nil, fmt.Errorf("process %d does not answer on port %d", server.PID, server.Port)
	}
	c, err := client.New(client.Options{URL: found.URL, Sign: found.Health.SignaturesRequired, Lookup: &auth.Lookup{Home: home, Port: server.Port}, Retries: -1})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	list, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	return list.Agents, err
}

// restoreHome makes the home of a backup.
func restoreHome(ctx context.Context, app *cli.App, path string) error {
	home, err := app.Home()
	if err != nil {
		return err
	}
	file, err := safefile.OpenLinked(path)
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	defer file.Close()
	report, err := backup.Restore(ctx, file, home)
	if err != nil {
		return fmt.Errorf("restore %s: %w", path, err)
	}
	return app.Printf("%s: %s of %s\n", home, sizeOf(report), path)
}

func sizeOf(r backup.Report) string { return cli.Counted(r.Sessions, "session") + ", " + unpacked(r) }

// unpacked is how much is in a backup, whose file is smaller.
func unpacked(r backup.Report) string {
	return cli.Counted(r.Files, "file") + ", " + cli.Counted(r.Bytes, "byte") + " unpacked"
}

// within reports whether a file that may not exist yet would lie in dir.
func within(path, dir string) (bool, error) {
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return false, err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	_, inside := safefile.Below(dir, folder)
	return inside, nil
}
