package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/terminal"
	"nexus.internal/cmd/internal/top"
)

// topCommand is nexus top.
func topCommand(app *cli.App) *cobra.Command {
	o := top.Options{App: app}
	once := false
	cmd := &cobra.Command{
		Use: "top [FLAGS]", DisableFlagsInUseLine: true,
		Short: "Show what the agents take: processor, memory, tokens, cost",
		Long: "Show what the agents take: processor, memory, tokens and cost, and what waits for them; at a terminal live, with\n" +
			"curves of the last minutes. The keys are on the screen. TOKENS and COST are also of the agents that an agent created.",
		Args: cli.Args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkKnown("sort", o.Sort, top.Sorts()); err != nil {
				return err
			}
			c, err := app.Connect(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer c.Close()
			if once || app.Structured() || !cli.IsTerminal(app.Stdin) || !cli.IsTerminal(app.Stdout) || dumb(app.Environ) {
				return top.Once(cmd.Context(), c, o)
			}
			o.Terminal, _ = app.Stdin.(*os.File)
			return live(cmd.Context(), c, o)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one table and end; it is so, too, where stdin or stdout is no terminal")
	cmd.Flags().StringVar(&o.Sort, "sort", "processor", "sort by a `COLUMN`: "+strings.Join(top.Sorts(), ", "))
	cli.OneOf(cmd, "sort", top.Sorts())
	return cli.Named(cmd, "agents.#.agent_id")
}

// live shows the agents until the person leaves, with talks to those that the person goes to in between.
func live(ctx context.Context, c *client.Client, o top.Options) error {
	environ, home, err := o.App.Found()
	if err != nil {
		return err
	}
	cwd, err := cli.Absolute("")
	if err != nil {
		return err
	}
	screen := top.NewScreen(c, o)
	for {
		agent, err := screen.Show(ctx, o, environ)
		if err != nil || agent == "" {
			return err
		}
		talk := terminal.Options{
			Agent: agent, Terminal: o.Terminal, Cwd: cwd, Home: home, Environ: environ,
			Version: o.App.Version, Stdin: o.App.Stdin, Stdout: o.App.Stdout, Stderr: o.App.Stderr,
		}
		if err := terminal.Run(ctx, c, talk); err != nil {
			return err
		}
	}
}
