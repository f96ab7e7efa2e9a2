package main

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/mcpfile"
	"nexus.internal/protocol/strict"
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
			"Each error names the line, the column and the member; one is exit status 1. A fault with which a server\n" +
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
	all := allErrors(err, app.Environ)
	if app.Structured() {
		return errors.Join(err, app.PrintValue(checkedOf(cfg, err, all)))
	}
	if err != nil {
		return errors.Join(all...)
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

// maxConfigErrors is how many errors of a file are told.
const maxConfigErrors = 100

// allErrors are err, the first error of a configuration that is found, and those that its file has besides,
// in their order there: each is found once the member of the one before is gone. Of a list, the first is told.
func allErrors(err error, environ []string) (all []error) {
	if err == nil {
		return nil
	}
	all = []error{err}
	place, ok := errors.AsType[*config.FileError](err)
	if !ok {
		return all
	}
	data, failed := os.ReadFile(place.Path)
	if failed != nil {
		return all
	}
	gone := map[string]bool{} // members that were taken out: that they are missing is no error of the file's
	for len(all) < maxConfigErrors {
		if wrong, ok := errors.AsType[*strict.Error](place.Err); ok {
			gone[wrong.Path] = true
		}
		if data, ok = strict.Without(data, place.Err); !ok {
			break
		}
		cfg, next := config.LoadText(place.Path, data, environ)
		if next == nil {
			_, next = settingsOf(cfg, serveOptions{}, environ)
		}
		if place, ok = errors.AsType[*config.FileError](next); !ok {
			break
		}
		if wrong, ok := errors.AsType[*strict.Error](next); !ok || !gone[wrong.Path] {
			all = append(all, next)
		}
	}
	slices.SortStableFunc(all, func(a, b error) int {
		_, one := placeOf(a)
		_, other := placeOf(b)
		return cmp.Or(cmp.Compare(one.Line, other.Line), cmp.Compare(one.Column, other.Column))
	})
	return all
}

// checked is what config check prints with --json.
type checked struct {
	OK       bool          `json:"ok"`
	File     *string       `json:"file"`   // null if there is none
	Error    *configError  `json:"error"`  // the first of them
	Errors   []configError `json:"errors"` // all
	Warnings []string      `json:"warnings"`
}

// configError says what is wrong with a configuration. Line and Column begin at 1, a
// column counts bytes; both are missing for an error about no place in the file.
type configError struct {
	Message string `json:"message"`
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
}

// checkedOf is what was found: err with all errors, or warnings about cfg, which is nil if it could not
// be read.
func checkedOf(cfg *config.Config, err error, all []error) checked {
	c := checked{OK: err == nil, Warnings: []string{}, Errors: []configError{}}
	for _, one := range all {
		_, place := placeOf(one)
		c.Errors = append(c.Errors, place)
	}
	if cfg != nil && len(cfg.Files) > 0 {
		c.File = &cfg.Files[0]
	}
	if err == nil {
		c.Warnings = append(c.Warnings, cfg.Warnings()...)
		return c
	}
	file, first := placeOf(all[0])
	if c.Error = &first; file != "" {
		c.File = &file
	}
	return c
}

// placeOf is an error with its place, and its file; "" for none.
func placeOf(err error) (file string, e configError) {
	if place, ok := errors.AsType[*config.FileError](err); ok {
		return place.Path, configError{place.Err.Error(), place.Line, place.Column}
	}
	if place, ok := errors.AsType[*mcpfile.Error](err); ok {
		return place.Path, configError{place.Err.Error(), place.Line, place.Column}
	}
	return "", configError{Message: err.Error()}
}
