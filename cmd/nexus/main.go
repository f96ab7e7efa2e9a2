package main

import (
	"context"
	"io"
	"log" //nolint:depguard // that of net/http, which is silenced
	"os"
	"runtime"
	"slices"

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
	app := program()
	os.Exit(app.Run(context.Background(), flagAsVerb(app.Root(), os.Args[1:])))
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
	app.Alone(func(cmd *cobra.Command) error { return talk.run(cmd, app) }, talk.flags, aloneHelp)
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

// flagAsVerb turns the older spelling, nexus --serve [PORT], into the verb, and --connect URL and --connect, whose URL may be left
// out, into --connect=URL and --connect=-.
func flagAsVerb(root *cobra.Command, args []string) []string {
	if len(args) > 0 && args[0] == "--serve" {
		return append([]string{"serve"}, args[1:]...)
	}
	isVerb := func(arg string) bool {
		return slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == arg })
	}
	for i, arg := range args {
		switch {
		case arg == "--" || i == 0 && isVerb(arg):
			return args // what follows is of a verb, or of a program
		case arg != "--connect":
		case i+1 < len(args) && args[i+1] != "" && args[i+1][0] != '-' && !isVerb(args[i+1]):
			return append(append(args[:i:i], arg+"="+args[i+1]), args[i+2:]...)
		default:
			return append(append(args[:i:i], arg+"="+noURL), args[i+1:]...)
		}
	}
	return args
}
