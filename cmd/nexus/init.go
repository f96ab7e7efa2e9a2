package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/safefile"
)

// sampleConfig is a configuration in which everything is commented out.
//
//go:embed init.jsonc
var sampleConfig []byte

// initCommand is nexus init.
func initCommand(app *cli.App) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a commented config.json into the home",
		Long: "Write a config.json into the home that names every setting with its default, commented out. One that is\n" +
			"there stays, unless --force is given.",
		Args: cli.Args(0, 0),
		RunE: func(*cobra.Command, []string) error { return writeSample(app, force) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace the config.json that is there")
	return cli.Without(cmd, "it needs no server", "port", "server", "ca", "api-key")
}

func writeSample(app *cli.App, force bool) error {
	cfg, err := app.Config()
	if err != nil {
		return err
	}
	if err := cfg.Home.MakeDirs(); err != nil {
		return err
	}
	path := cfg.Home.Path("config.json")
	switch _, err := os.Lstat(path); {
	case err == nil && !force:
		return fmt.Errorf("%s is there: --force replaces it", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := safefile.Replace(path, sampleConfig, true); err != nil {
		return err
	}
	if app.Structured() {
		return app.PrintValue(struct {
			File string `json:"file"`
		}{path})
	}
	return app.Printf("wrote %s: nexus config check says what is wrong with it, once you have changed it\n", path)
}
