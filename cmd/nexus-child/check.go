package main

import (
	"context"
	"fmt"
	"io"

	"nexus.internal/child/codecheck"
	"nexus.internal/child/sandbox"
)

// runCheck is nexus-child check: no agent, but one look of the machine's
// checkers at code (SPEC §6.7). It returns the exit status.
func runCheck(ctx context.Context, args []string, stdin io.Reader, stdout, errs io.Writer, environ []string) int {
	if len(args) > 0 {
		fmt.Fprintf(errs, "nexus-child: check takes no arguments\nTry nexus-child --help.\n")
		return 2
	}
	if err := sandbox.Adopt(); err != nil {
		fmt.Fprintf(errs, "nexus-child: %v\n", err)
	}
	if err := codecheck.Serve(ctx, stdin, stdout, environ); err != nil {
		fmt.Fprintf(errs, "nexus-child: check: %v\n", err)
		return 1
	}
	return 0
}
