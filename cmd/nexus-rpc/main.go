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

// linked is the version, where the linker sets it (make build).
var linked string

func main() {
	// net/http writes there what a service says that nobody asked for: that is in no log.
	log.SetOutput(io.Discard)
	app := cli.New(cli.Options{
		Name:    "nexus-rpc",
		Summary: "Calls a nexus server",
		Version: version.Of(linked),
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
	})
	os.Exit(app.Run(context.Background(), os.Args[1:]))
}
