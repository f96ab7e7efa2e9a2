package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/shellword"
	"nexus.internal/supervisor/cluster/identity"
)

// clusterCommand is nexus cluster.
func clusterCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Make several machines one, or list them",
		Args:  cli.VerbsOnly,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	status := &cobra.Command{
		Use:   "status",
		Short: "List the machines of the cluster that the server is one of; the same as nodes",
		Args:  cli.Args(0, 0),
		RunE:  func(cmd *cobra.Command, args []string) error { return runVerb(cmd, "nodes", args) },
	}
	drain := &cobra.Command{
		Use:   "drain [MACHINE]",
		Short: "Hand over the agents of a machine to the others; the same as drain",
		Long:  cli.DrainHelp,
		Args:  cli.Args(0, 1),
		RunE:  func(cmd *cobra.Command, args []string) error { return runVerb(cmd, "drain", args) },
	}
	drain.Flags().Bool("undo", false, "have the machine take agents again")
	label := &cobra.Command{
		Use:   "label [MACHINE] [LABEL…]",
		Short: "Change the labels of a machine, or list them; the same as label",
		Long:  cli.LabelHelp,
		RunE:  func(cmd *cobra.Command, args []string) error { return runVerb(cmd, "label", args) },
	}
	remove := &cobra.Command{
		Use:   "remove MACHINE",
		Short: "Remove a machine that is lost for good, or drained; the same as remove",
		Long:  cli.RemoveHelp,
		Args:  cli.Args(1, 1),
		RunE:  func(cmd *cobra.Command, args []string) error { return runVerb(cmd, "remove", args) },
	}
	remove.Flags().Bool("force", false, "remove a machine that is up, with the agents that it has")
	cmd.AddCommand(clusterInitCommand(app), clusterBackupCommand(app), clusterRestoreCommand(app), clusterImportCommand(app), status, drain, label, remove)
	return cmd
}

// runVerb runs the verb of nexus-rpc of that name, with the flags of its own that cmd was given.
func runVerb(cmd *cobra.Command, name string, args []string) error {
	verb, _, err := cmd.Root().Find([]string{name})
	if err != nil {
		return err
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if cmd.InheritedFlags().Lookup(f.Name) == nil {
			err = errors.Join(err, verb.Flags().Set(f.Name, f.Value.String()))
		}
	})
	if err != nil {
		return err
	}
	verb.SetContext(cmd.Context())
	return verb.RunE(verb, args)
}

func clusterInitCommand(app *cli.App) *cobra.Command {
	var c identity.Cluster
	cmd := &cobra.Command{
		Use:   "init DIR MACHINE=HOST:PORT…",
		Short: "Make the certificates by which the machines of a cluster know each other",
		Long: "Makes in DIR, for each machine, a directory MACHINE that is to be copied there, for nexus serve --cluster-files: its\n" +
			"certificate, and where all machines are. HOST:PORT is where the other machines reach it. DIR is new or empty. If it is\n" +
			"of a cluster already, machines are added, and those that are named again get a new certificate; --without takes the\n" +
			"directory of one away, as nexus cluster remove has removed it. Copy all directories then. DIR/ca-key.pem is for that alone: whoever has it can add machines.",
		Example: "  nexus cluster init farm a=10.0.0.1:8766 b=10.0.0.2:8766 c=10.0.0.3:8766",
		Args:    cli.Args(1, 1+100),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && len(c.Without) == 0 {
				return cli.Usage("name machines, as in a=10.0.0.1:8766, or --without MACHINE")
			}
			for _, arg := range args[1:] {
				a, err := identity.ParseAddress(arg)
				if err != nil {
					return cli.Usage("%v", err)
				}
				c.Machines = append(c.Machines, a)
			}
			specs, err := identity.Init(args[0], c)
			if err != nil {
				return fmt.Errorf("make a cluster in %s: %w", args[0], err)
			}
			if app.Structured() {
				return app.PrintValue(specs)
			}
			for _, s := range specs {
				if err := app.Printf("%s (%s): nexus serve --cluster-files %s\n", s.Machine, s.Listen, shellword.Quote(filepath.Join(args[0], s.Machine))); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&c.Without, "without", nil, "remove the directory of `MACHINE`, which is none of the cluster any more; may be repeated")
	cmd.Flags().StringVar(&c.Name, "name", "", "`NAME` of the cluster (default: that of DIR, else "+identity.DefaultName+")")
	cli.Without(cmd, "it needs no server", "port", "server", "ca", "api-key", "home")
	return cmd
}
