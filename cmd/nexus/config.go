package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/mcpfile"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

// configCommand is nexus config.
func configCommand(app *cli.App) *cobra.Command {
	cmd := cli.Without(&cobra.Command{
		Use:   "config",
		Short: "Check config.json, or print its JSON Schema",
		Args:  cli.VerbsOnly,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}, "it needs no server", "port", "server", "ca", "api-key")
	cmd.AddCommand(&cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration as nexus serve reads it (default: config.json in the home)",
		Long: "Check a configuration as nexus serve reads it: FILE, or config.json in the home and the mcp.json beside it.\n" +
			"Each error names the line, the column and the member; one is exit status 1. A fault with which a server\n" +
			"still starts, such as a key missing in this environment, is a warning on stderr. --json prints both on stdout.",
		Args: cli.Args(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return checkConfig(app, strings.Join(args, "")) },
	}, cli.Without(&cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of config.json, for editors",
		Args:  cli.Args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			text, err := config.Schema()
			if err != nil {
				return err
			}
			if app.Structured() {
				return app.PrintValue(jsontext.Value(text))
			}
			_, err = app.Stdout.Write(text)
			return err
		},
	}, "it needs no home", "home"))
	return cmd
}

// checkConfig checks the file at path, or where path is "" the files of the home.
func checkConfig(app *cli.App, path string) error {
	cfg, err := app.LoadConfig(path)
	if err == nil {
		_, err = settingsOf(cfg, serveOptions{}, app.Environ)
	}
	all := allErrors(err, app.Environ)
	servers := ""
	if home, failed := app.Home(); failed == nil && path == "" {
		servers = filepath.Join(home, "mcp.json")
		all = append(all, allErrors(mcpfile.Check(servers), app.Environ)...)
	}
	if app.Structured() {
		checked := checkedOf(cfg, all)
		return errors.Join(errors.Join(all[:min(1, len(all))]...), app.PrintValue(checked))
	}
	if len(all) > 0 {
		return errors.Join(all...)
	}
	for _, warning := range cfg.Warnings() {
		if err := app.Eprintf("warning: %s\n", warning); err != nil {
			return err
		}
	}
	files := cfg.Files
	if _, err := os.Stat(servers); err == nil {
		files = append(files, servers)
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

// allErrors are err, the first error of a file that is found, and those that the file has besides, in their
// order there: each is found once the member of the one before is gone. Of the elements of a list, the first is told.
func allErrors(err error, environ []string) (all []error) {
	if err == nil {
		return nil
	}
	all = []error{err}
	first, err := placeOf(err)
	data, again, failed := reread(first, err, environ)
	if failed != nil {
		return all // it cannot be read, which is the error
	}
	var gone []string // members that were taken out: that they are missing is no error of the file's
	follows := func(member string) bool {
		return slices.ContainsFunc(gone, func(one string) bool { return one == member || member != "" && strings.HasPrefix(one, member+".") })
	}
	for len(all) < maxConfigErrors {
		if wrong, ok := errors.AsType[*strict.Error](err); ok {
			gone = append(gone, wrong.Path)
		}
		left, ok := strict.Without(data, err)
		if !ok {
			break
		}
		data = left
		next := again(data)
		place, cause := placeOf(next)
		if place.Line == 0 {
			break
		}
		if err = cause; !follows(place.Member) {
			all = append(all, next)
		}
	}
	slices.SortStableFunc(all, func(a, b error) int {
		one, _ := placeOf(a)
		other, _ := placeOf(b)
		return cmp.Or(cmp.Compare(one.Line, other.Line), cmp.Compare(one.Column, other.Column))
	})
	return all
}

// reread is what the file of an error holds, as JSON, and the check of another text in its place.
func reread(e configError, err error, environ []string) (data []byte, check func([]byte) error, failed error) {
	if e.mcp {
		data, failed = safefile.ReadLinked(e.File, mcpfile.MaxSize)
		return data, func(data []byte) error {
			_, err := mcpfile.Parse(e.File, data, false)
			return err
		}, failed
	}
	if e.File == "" {
		return nil, nil, err
	}
	data, failed = config.ReadText(e.File)
	return data, func(data []byte) error {
		cfg, err := config.LoadText(e.File, data, environ)
		if err == nil {
			_, err = settingsOf(cfg, serveOptions{}, environ)
		}
		return err
	}, failed
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
	File    string `json:"file,omitzero"`
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
	Member  string `json:"member,omitzero"` // as in providers.local.models[0].id

	mcp bool // the file is mcp.json
}

// checkedOf is what was found: all errors, or warnings about cfg, which is nil if it could not be read.
func checkedOf(cfg *config.Config, all []error) checked {
	c := checked{OK: len(all) == 0, Warnings: []string{}, Errors: []configError{}}
	for _, one := range all {
		place, _ := placeOf(one)
		c.Errors = append(c.Errors, place)
	}
	if cfg != nil && len(cfg.Files) > 0 {
		c.File = &cfg.Files[0]
	}
	if c.OK {
		c.Warnings = append(c.Warnings, cfg.Warnings()...)
		return c
	}
	if c.Error = &c.Errors[0]; c.Error.File != "" {
		c.File = &c.Error.File
	}
	return c
}

// placeOf is an error with its place, and the error without it; the zero value for nil.
func placeOf(err error) (e configError, cause error) {
	if err == nil {
		return e, nil
	}
	cause = err
	if place, ok := errors.AsType[*config.FileError](err); ok {
		cause, e = place.Err, configError{File: place.Path, Line: place.Line, Column: place.Column}
	} else if place, ok := errors.AsType[*mcpfile.Error](err); ok {
		cause, e = place.Err, configError{File: place.Path, Line: place.Line, Column: place.Column, mcp: true}
	}
	if wrong, ok := errors.AsType[*strict.Error](cause); ok {
		e.Member = wrong.Path
	}
	e.Message = cause.Error()
	return e, cause
}
