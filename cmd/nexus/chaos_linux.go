package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/chaos"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/clusterchaos"
)

// chaosOptions are the flags of chaos.
type chaosOptions struct {
	minutes float64
	seed    uint64
	agents  int
	keep    bool
	cluster uint // machines; 0 for a server alone
	// kind is that of the agents, and command its program; "" for those of nexus.
	kind    string
	command []string
	// The stages that chaos starts itself for: with mount, a file system is to
	// be mounted at dir; with disk, it is there.
	dir         string
	mount, disk bool
}

func addChaos(app *cli.App) {
	var o chaosOptions
	cmd := &cobra.Command{
		Use: "chaos [FLAGS] [-- COMMAND…]", DisableFlagsInUseLine: true,
		Short: "Attack a server of its own and check its promises",
		Long: "Starts a server in a temporary home with agents on the offline model, or of another make with --kind. Clients send, cancel, repeat, destroy and\n" +
			"create while agents are killed and stopped, the disk is filled, and the server is killed and started again.\n" +
			"Then every answer, event, process and descriptor is checked. Exit status 1 if a promise was broken.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.command = args
			switch {
			case (o.kind != "") != (len(args) > 0):
				return cli.Usage("--kind and a program after -- go together: nexus chaos --kind acp -- PROGRAM")
			case o.minutes < 0.05 || o.minutes > 24*60:
				return cli.Usage("--minutes must be from 0.05 to 1440, not %g", o.minutes)
			case o.agents < 2 || o.agents > 500:
				return cli.Usage("--agents must be from 2 to 500, not %d", o.agents)
			case o.cluster != 0 && (o.cluster < 2 || o.cluster > 5):
				return cli.Usage("--cluster must be from 2 to 5, not %d", o.cluster)
			case o.cluster != 0 && o.kind != "":
				return cli.Usage("--cluster is for agents of nexus: say it without --kind")
			case o.cluster != 0:
				return runClusterChaos(cmd.Context(), app, o)
			}
			return runChaos(cmd.Context(), app, o)
		},
	}
	cmd.Flags().Float64Var(&o.minutes, "minutes", 1, "how long to attack")
	cmd.Flags().Uint64Var(&o.seed, "seed", 0, "seed of the plan (default: a random one; it is printed)")
	cmd.Flags().IntVar(&o.agents, "agents", 20, "number of agents; a third of them is not attacked")
	cmd.Flags().StringVar(&o.kind, "kind", "", "agents of this kind, by the program after --, which must do what the prompts name (default: those of nexus)")
	cmd.Flags().UintVar(&o.cluster, "cluster", 0, "attack a cluster of `N` machines, 2 to 5, instead of a server alone: machines are killed, stand still and are cut off, disks are filled, clocks jump")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep the home, the logs and the history also after a success")
	cmd.Flags().StringVar(&o.dir, "dir", "", "")
	cmd.Flags().BoolVar(&o.mount, "mount", false, "")
	cmd.Flags().BoolVar(&o.disk, "disk", false, "")
	for _, internal := range []string{"dir", "mount", "disk"} {
		_ = cmd.Flags().MarkHidden(internal) // they exist
	}
	cli.Without(cmd, "its server and home are its own", "home", "port", "server", "ca", "api-key", "json", "output")
	app.Add(cmd)
}

func (o chaosOptions) again(stage string) []string {
	args := []string{
		"chaos", stage, "--dir", o.dir, "--minutes", strconv.FormatFloat(o.minutes, 'g', -1, 64), "--seed", strconv.FormatUint(o.seed, 10),
		"--agents", strconv.Itoa(o.agents), "--keep=" + strconv.FormatBool(o.keep), "--cluster", strconv.FormatUint(uint64(o.cluster), 10),
	}
	if o.kind == "" {
		return args
	}
	return append(append(args, "--kind", o.kind, "--"), o.command...)
}

// runClusterChaos attacks a cluster, by this program once more where it may have namespaces of its own. What a broken promise can be
// seen by is left in its folder.
func runClusterChaos(ctx context.Context, app *cli.App, o chaosOptions) (err error) {
	ctx, stop := cli.InterruptibleOnce(ctx)
	defer stop()
	if o.disk {
		return attackCluster(ctx, app, o, clusterchaos.Separate())
	}
	return runApart(app, o, func(o chaosOptions) (int, error) {
		status, err := chaos.OnDisk(ctx, o.again("--disk"), true)
		if err != nil {
			status, err = 0, attackCluster(ctx, app, o, err)
		}
		return status, err
	})
}

// runApart runs an attack in a folder of its own, which is removed after a success. The attack returns the exit status of
// this program, run once more, if it is that.
func runApart(app *cli.App, o chaosOptions, attack func(o chaosOptions) (int, error)) (err error) {
	for o.seed == 0 {
		o.seed = rand.Uint64()
	}
	if _, err := fmt.Fprintf(app.Stdout, "seed %d\n", o.seed); err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp("", "nexus-chaos-"); err != nil {
		return err
	}
	status, err := attack(o)
	if status != 0 {
		os.Exit(status) // that process has said why
	}
	if err == nil && !o.keep {
		err = os.RemoveAll(o.dir)
	}
	return err
}

// attackCluster runs the attack and says what came of it. NotApart is why there are no namespaces for the machines; nil if there may be.
func attackCluster(ctx context.Context, app *cli.App, o chaosOptions, notApart error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	options := clusterchaos.Options{
		Nexus: self, Machines: int(o.cluster), Seed: o.seed, Time: o.long(), Agents: o.agents, Dir: o.dir, Progress: app.Stderr, Keep: o.keep,
	}
	if options.Apart = notApart == nil; !options.Apart {
		options.NotApart = notApart.Error()
	}
	report, err := clusterchaos.Run(ctx, options)
	if err != nil {
		return fmt.Errorf("%w (see %s)", err, o.dir)
	}
	if err := report.Print(app.Stdout); err != nil {
		return err
	}
	switch {
	case !report.Passed():
		return fmt.Errorf("a promise was broken: the homes and logs are in %s", o.dir)
	case o.keep:
		return app.Printf("the homes and logs are in %s\n", o.dir)
	}
	return nil
}

func (o chaosOptions) long() time.Duration { return time.Duration(o.minutes * float64(time.Minute)) }

func (o chaosOptions) diskDir() string { return filepath.Join(o.dir, "disk") }

func runChaos(ctx context.Context, app *cli.App, o chaosOptions) (err error) {
	ctx, stop := cli.InterruptibleOnce(ctx)
	defer stop()
	if o.mount {
		return attack(ctx, app, o, chaos.Mount(o.diskDir(), o.agents, o.long(), o.again("--disk")))
	}
	if o.disk {
		return attack(ctx, app, o, nil)
	}
	return runApart(app, o, func(o chaosOptions) (int, error) {
		if err := os.Mkdir(o.diskDir(), 0o700); err != nil {
			return 0, err
		}
		status, err := chaos.OnDisk(ctx, o.again("--mount"), false)
		if err != nil {
			status, err = 0, attack(ctx, app, o, err)
		}
		return status, err
	})
}

// attack runs the attack and says what came of it. noDisk is why there is no
// disk to be filled, nil if there is one. What a broken promise can be seen by
// is left in the folder.
func attack(ctx context.Context, app *cli.App, o chaosOptions, noDisk error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	options := chaos.Options{
		Nexus: self, Seed: o.seed, Agents: o.agents, Time: o.long(),
		Dir: o.dir, Disk: o.diskDir(), Progress: app.Stderr,
		Kind: o.kind, Command: o.command,
	}
	if noDisk != nil {
		options.Disk, options.NoDisk = "", noDisk.Error()
	}
	report, err := chaos.Run(ctx, options)
	if keep := o.keep || err != nil || !report.Passed(); keep && noDisk == nil {
		err = errors.Join(err, os.CopyFS(filepath.Join(o.dir, "home"), os.DirFS(filepath.Join(o.diskDir(), "home"))))
	}
	if report == nil {
		return fmt.Errorf("%w (see %s)", err, o.dir)
	}
	if o.keep || !report.Passed() {
		report.Folder = o.dir
	}
	if err := report.Print(app.Stdout); err != nil {
		return err
	}
	switch {
	case err != nil:
		return err
	case len(report.Counts) > 0:
		return errors.New("a promise was broken")
	case len(report.NotTried) > 0:
		return fmt.Errorf("nothing is shown: %s", strings.Join(report.NotTried, ", "))
	}
	return nil
}
