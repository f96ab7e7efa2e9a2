package main

import (
	"context"
	"io"
	"log" //nolint:depguard // that of net/http, which is silenced
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/acpserve"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/mcpserve"
	"nexus.internal/cmd/internal/version"
	"nexus.internal/cmd/internal/yamlcheck"
)

// init keeps main on the first thread: see proctree.ExecWithCoarseTimers.
func init() { runtime.LockOSThread() }

func main() {
	// net/http writes there what a service says that nobody asked for: that is in no log.
	log.SetOutput(io.Discard)
	os.Exit(program().Run(context.Background(), flagAsVerb(os.Args[1:])))
}

// program is the command line of nexus.
func program() *cli.App {
	app := cli.New(cli.Options{
		Name:    "nexus",
		Summary: "Runs AI agents, each in its own process",
		Version: version.Of(),
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
	})
	talk := &conversation{}
	app.Alone(func(cmd *cobra.Command) error { return talk.run(cmd, app) }, talk.flags)
	app.Add(serveCommand(app))
	app.Add(configCommand(app))
	app.Add(initCommand(app))
	app.Add(clusterCommand(app))
	app.Add(doctorCommand(app))
	app.Add(logsCommand(app))
	app.Add(topCommand(app))
	app.Add(probeCommand(app))
	app.Add(mcpserve.Command(app))
	app.Add(acpserve.Command(app))
	app.Add(yamlcheck.Command(os.Stdout))
	addBackup(app)
	addChaos(app)
	return app
}

// flagAsVerb turns the older spelling, nexus --serve [PORT], into the verb, and --connect URL into
// --connect=URL.
func flagAsVerb(args []string) []string {
	if len(args) > 0 && args[0] == "--serve" {
		return append([]string{"serve"}, args[1:]...)
	}
	for i, arg := range args {
		if arg == "--connect" && i+1 < len(args) && strings.Contains(args[i+1], ":") { // its value may be left out
			return append(append(args[:i:i], arg+"="+args[i+1]), args[i+2:]...)
		}
	}
	return args
}
