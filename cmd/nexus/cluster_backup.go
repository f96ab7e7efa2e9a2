package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/backup"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor/cluster/replicated"
)

const (
	// clusterSocket is the name of the socket at which a machine of a cluster is asked for a backup, or to bring in a home, in run.
	clusterSocket = "cluster"
	// The answer has how many sessions it has in a header, how much is in it, the agents of which the machines have nothing yet, and those
	// of which what they have cannot be read, with the reasons.
	savedHeader, sizeHeader, withoutHeader, lostHeader = "X-Sessions", "X-Size", "X-Without", "X-Lost"
	// maxWithout bounds what is told of either of the latter, in bytes.
	maxWithout = 2000
)

// clusterSaver answers with a backup of what the machines have of all agents.
type clusterSaver struct {
	kept    *replicated.Store
	home    config.Home
	version string
}

// ServeHTTP implements [http.Handler]. The backup is whole before any of it is sent.
func (s *clusterSaver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.save(r.Context(), w); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func (s *clusterSaver) save(ctx context.Context, w http.ResponseWriter) (err error) {
	scratch, err := safefile.MakeDir(s.home.ScratchDir())
	if err != nil {
		return err
	}
	defer func() { _ = scratch.Remove() }() // the next one sweeps it
	home := config.Home(filepath.Join(scratch.Path(), "home"))
	if err := os.MkdirAll(home.SessionsDir(), 0o700); err != nil {
		return err
	}
	catalogue := sessions.NewReader(string(home))
	saved, err := s.kept.Save(ctx, home.SessionsDir(), filepath.Join(scratch.Path(), "coming"), func(agent string) (there bool, err error) {
		if !catalogue.Exists(agent) {
			return false, nil
		}
		return true, sessions.Whole(catalogue, agent)
	})
	if err != nil {
		return err
	}
	packed, err := os.OpenFile(filepath.Join(scratch.Path(), "backup"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer packed.Close()
	report, err := backup.Write(ctx, packed, string(home), backup.Options{Version: s.version, NoKeys: true})
	if err != nil {
		return err
	}
	size, err := packed.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	lost := slices.Sorted(maps.Keys(saved.Lost))
	for i, name := range lost {
		lost[i] = fmt.Sprintf("%s (%s)", name, strings.ReplaceAll(saved.Lost[name].Error(), string(home)+string(filepath.Separator), ""))
	}
	w.Header().Set(savedHeader, strconv.Itoa(saved.Agents))
	w.Header().Set(sizeHeader, unpacked(report))
	w.Header().Set(withoutHeader, textcut.Head(strings.Join(saved.Without, ", "), maxWithout))
	w.Header().Set(lostHeader, textcut.Line(strings.Join(lost, ", "), maxWithout))
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	_, _ = io.Copy(w, io.NewSectionReader(packed, 0, size)) // the client finds out that it is cut off
	return nil
}

func clusterBackupCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save the agents of all machines in a file, while they work",
		Long: "Saves what the machines of the cluster keep of all agents in FILE, a tar.gz archive that only you can read: sessions, images\n" +
			"and records, of each agent as they were at one moment. The server of --home must run; any machine will do. FILE must not\n" +
			"exist. Agents of which what is kept cannot be read are named, and missing: the exit code is 1 then. nexus cluster\n" +
			"restore makes a home of it, with which the first machine of another cluster is started.\n" +
			"Configurations, keys, plans and audit logs are not in it: save these by nexus backup, on each machine.",
		Args: cli.Args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return saveCluster(ctx, app, args[0])
		},
	}
	cli.Without(cmd, "it asks the server of the home", "port", "server", "ca", "api-key", "json", "output")
	return cmd
}

func clusterRestoreCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Create the home of the first machine of a new cluster from such a backup",
		Long: "Creates the home of --home from a file that nexus cluster backup wrote. The home must not exist, or must be empty. The\n" +
			"server that is started with it makes all agents its machine's and ships them to the others; one whose name another\n" +
			"machine has stays with that machine. A file that is damaged or cut off is refused, and nothing is left of it.",
		Args: cli.Args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.Interruptible(cmd.Context())
			defer stop()
			return restoreHome(ctx, app, args[0])
		},
	}
	cli.Without(cmd, "it needs no server", "port", "server", "ca", "api-key", "json", "output")
	return cmd
}

// saveCluster writes a backup of the cluster into a new file, which has its name once it is whole.
func saveCluster(ctx context.Context, app *cli.App, path string) (err error) {
	if path == "-" {
		return cli.Usage("FILE must be a file, and a backup is not written to stdout: ./- is a file of that name")
	}
	home, err := app.Home()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s exists, and a backup does not replace a file: nothing was written", path))
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".nexus-backup-*")
	if err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	answer, err := askMachine(ctx, home, http.MethodGet, "backup", http.NoBody)
	if err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	defer answer.Body.Close()
	_, err = io.Copy(file, answer.Body)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Link(file.Name(), path) // which replaces nothing
	}
	if err == nil {
		err = safefile.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	if without := answer.Header.Get(withoutHeader); without != "" {
		if err := app.Eprintf("nexus: not saved, as their machines have not shipped anything of them yet: %s\n", without); err != nil {
			return err
		}
	}
	agents, _ := strconv.Atoi(answer.Header.Get(savedHeader)) // which a server of ours wrote
	size := cmp.Or(answer.Header.Get(sizeHeader), "all")      // one of an earlier version does not say it
	err = app.Printf("%s: %s, %s of the cluster\n", path, cli.Counted(agents, "session"), size)
	if lost := answer.Header.Get(lostHeader); err == nil && lost != "" {
		err = fmt.Errorf("%s lacks agents of which what the machines keep cannot be read: %s", path, lost)
	}
	return err
}

// askMachine asks the server of a home at its socket.
func askMachine(ctx context.Context, home, method, what string, body io.Reader) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(home, "run", clusterSocket))
		},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://cluster/"+what, body)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return nil, fmt.Errorf("no server that is a machine of a cluster runs in %s: %w", home, op.Err)
		}
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		return nil, errors.Join(err, answer.Body.Close(), errors.New(strings.TrimSpace(string(text))))
	}
	return answer, nil
}
