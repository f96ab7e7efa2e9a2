package main

import (
	"strings"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
)

// configCommand is nexus config.
func configCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check config.json, or print its JSON Schema",
		Args:  cli.VerbsOnly,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration as nexus serve reads it (default: config.json in the home)",
		Long: "Check a configuration as nexus serve reads it, config.json in the home unless FILE is given.\n" +
			"An error names the line, the column and the member, and is exit status 1. What does not keep a server from\n" +
			"starting, as a key that is not in this environment, is a warning on stderr.",
		Args: cli.MaxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return checkConfig(app, strings.Join(args, "")) },
	}, &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of config.json, for editors",
		Args:  cli.MaxArgs(0),
		RunE: func(*cobra.Command, []string) error {
			text, err := config.Schema()
			if err != nil {
				return err
			}
			_, err = app.Stdout.Write(text)
			return err
		},
	})
	return cmd
}

// checkConfig checks the file at path, or that of the home where path is "".
func checkConfig(app *cli.App, path string) error {
	cfg, err := app.LoadConfig(path)
	if err != nil {
		return err
	}
	if _, err := settingsOf(cfg, serveOptions{}, app.Environ); err != nil {
		return err
	}
	for _, warning := range cfg.Warnings() {
		if err := app.Eprintf("warning: %s\n", warning); err != nil {
			return err
		}
	}
	said := "no config.json: everything is as it is built in"
	if len(cfg.Files) > 0 {
		said = cfg.Files[0] + ": no errors"
	}
	return app.Printf("%s\n", said)
}
