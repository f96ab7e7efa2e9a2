package main

import (
	"context"
	"io"
	"log" //nolint:depguard // that of net/http, which is silenced
	"os"
	"runtime"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/mcpserve"
	"nexus.internal/cmd/internal/version"
	"nexus.internal/cmd/internal/yamlcheck"
)

// linked is the version, where the linker sets it (make build).
var linked string

// init keeps main on the first thread: see proctree.ExecWithCoarseTimers.
func init() { runtime.LockOSThread() }

func main() {
	// net/http writes there what a service says that nobody asked for: that is in no log.
	log.SetOutput(io.Discard)
	app := cli.New(cli.Options{
		Name:    "nexus",
		Summary: "Runs AI agents, each in its own process",
		Version: version.Of(linked),
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
	})
	app.Add(serveCommand(app))
	app.Add(configCommand(app))
	app.Add(doctorCommand(app))
	app.Add(logsCommand(app))
	app.Add(mcpserve.Command(app))
	app.Add(yamlcheck.Command(os.Stdout))
	addBackup(app)
	addChaos(app)
	os.Exit(app.Run(context.Background(), flagAsVerb(os.Args[1:])))
}

// flagAsVerb turns the older spelling, nexus --serve [PORT], into the verb.
func flagAsVerb(args []string) []string {
	if len(args) > 0 && args[0] == "--serve" {
		return append([]string{"serve"}, args[1:]...)
	}
	return args
}
