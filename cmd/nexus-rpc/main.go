// Nexus-rpc asks something of a nexus server: nexus-rpc VERB, see --help. The
// verbs are those of package cli; nexus has them too. The contract is SPEC.md
// §2.2.
package main

import (
	"context"
	"io"
	"log" //nolint:depguard // that of net/http, which is silenced
	"os"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/version"
)

func main() {
	// net/http writes there what a service says that nobody asked for: that is in no log.
	log.SetOutput(io.Discard)
	os.Exit(program().Run(context.Background(), os.Args[1:]))
}

// program is the command line of nexus-rpc.
func program() *cli.App {
	return cli.New(cli.Options{
		Name:    "nexus-rpc",
		Summary: "Calls a nexus server",
		Version: version.Of(),
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
	})
}
