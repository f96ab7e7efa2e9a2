package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/mcpfile"
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
		Long: "Check a configuration as nexus serve reads it: FILE, or config.json in the home and the mcp.json beside it.\n" +
			"An error names the line, the column and the member, and is exit status 1. A fault with which a server\n" +
			"still starts, such as a key missing in this environment, is a warning on stderr. --json prints both on stdout.",
		Args: cli.Args(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return checkConfig(app, strings.Join(args, "")) },
	}, &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of config.json, for editors",
		Args:  cli.Args(0, 0),
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
	if err == nil {
		_, err = settingsOf(cfg, serveOptions{}, app.Environ)
	}
	if err == nil && path == "" {
		err = mcpfile.Check(cfg.Home.Path("mcp.json"))
	}
	if app.JSON() {
		return errors.Join(err, app.PrintJSON(checkedOf(cfg, err)))
	}
	if err != nil {
		return err
	}
	for _, warning := range cfg.Warnings() {
		if err := app.Eprintf("warning: %s\n", warning); err != nil {
			return err
		}
	}
	files := cfg.Files
	if servers := cfg.Home.Path("mcp.json"); path == "" {
		if _, err := os.Stat(servers); err == nil {
			files = append(files, servers)
		}
	}
	if len(files) == 0 {
		return app.Printf("no config.json: everything is as it is built in\n")
	}
	for _, file := range files {
		if err := app.Printf("%s: no errors\n", file); err != nil {
			return err
		}
	}
	return nil
}

// checked is what config check prints with --json.
type checked struct {
	OK       bool         `json:"ok"`
	File     *string      `json:"file"` // null if there is none
	Error    *configError `json:"error"`
	Warnings []string     `json:"warnings"`
}

// configError says what is wrong with a configuration. Line and Column begin at 1, a
// column counts bytes; both are missing for an error about no place in the file.
type configError struct {
	Message string `json:"message"`
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
}

// checkedOf is what was found: err, or warnings about cfg, which is nil if it could not be
// read.
func checkedOf(cfg *config.Config, err error) checked {
	c := checked{OK: err == nil, Warnings: []string{}}
	if cfg != nil && len(cfg.Files) > 0 {
		c.File = &cfg.Files[0]
	}
	if err == nil {
		c.Warnings = append(c.Warnings, cfg.Warnings()...)
		return c
	}
	c.Error = &configError{Message: err.Error()}
	if place, ok := errors.AsType[*config.FileError](err); ok {
		c.File, c.Error.Message = &place.Path, place.Err.Error()
		c.Error.Line, c.Error.Column = place.Line, place.Column
	} else if place, ok := errors.AsType[*mcpfile.Error](err); ok {
		c.File, c.Error.Message = &place.Path, place.Err.Error()
		c.Error.Line, c.Error.Column = place.Line, place.Column
	}
	return c
}
