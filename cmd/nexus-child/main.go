// Command nexus-child is one agent on stdin and stdout: it reads commands, a
// JSON object on each line, and writes events. See SPEC.md §2 and §3.
//
// Exit status: 0 after shutdown, a signal or the end of stdin; 1 if stdout was
// lost (141 of what only prints, as its version); 2 if it could not start, with the reason on stderr and before it said
// ready.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // that of net/http, which is silenced
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"nexus.internal/child"
	"nexus.internal/child/codecheck"
	"nexus.internal/child/foreign"
	"nexus.internal/child/journal"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/cmd/internal/logsink"
	"nexus.internal/cmd/internal/version"
	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/schema"
)

// processors are those of this process. Only main limits them.
var processors tool.Processors

func main() {
	// net/http writes there what a service says that nobody asked for: that is in no log.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	// A write to a stdout without a reader is to fail, not to kill: the turn in
	// flight is saved first.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	processors.Limit()
	proctree.JoinLineage() // before anything is started
	os.Exit(run(ctx, os.Args[1:], pollable(os.Stdin), os.Stdout, os.Stderr, os.Environ()))
}

// run is the whole program but for what only a process can do. It returns the
// exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	switch {
	case len(args) > 0 && args[0] == "version":
		args = append([]string{"--version"}, args[1:]...)
	case len(args) > 0 && args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help") // last: an argument before it is refused
	case len(args) == 2 && (args[0] == "schema" || args[0] == "check" || args[0] == "spare") && (args[1] == "--help" || args[1] == "-h"):
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "schema" {
		return runSchema(args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "check" {
		errs := logsink.New(stderr, logsink.Auto)
		defer errs.Flush()
		return runCheck(ctx, args[1:], stdin, stdout, errs, environ)
	}
	if len(args) > 0 && args[0] == "spare" {
		return runSpare(ctx, args[1:], stdin, stdout, stderr, environ)
	}
	return runAgent(ctx, args, stdin, stdout, stderr, environ)
}

// runAgent is the agent that the arguments describe.
func runAgent(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	f, err := parse(args)
	errs := logsink.New(stderr, f.logFormat)
	defer errs.Flush()
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, err := fmt.Fprintf(stdout, usage, f.set.FlagUsages())
		return printError(errs, "help", err)
	case err != nil:
		fmt.Fprintf(errs, "nexus-child: %v\nTry nexus-child --help.\n", err)
		return 2
	case f.version:
		_, err := fmt.Fprintf(stdout, "nexus-child version %s, child protocol version %d\n", version.Of(), protocol.Version)
		return printError(errs, "version", err)
	}
	log := errs.Logger(f.logLevel).Named("child")
	if err := sandbox.Adopt(); err != nil {
		log.Warn("what a killed tool leaves behind may outlive this process", zap.Error(err))
	}
	// A file that is read may be a pipe that nobody writes to. There is nothing to save yet.
	starts := context.AfterFunc(ctx, func() { os.Exit(0) })
	a, err := assemble(f, environ, log)
	if !starts() {
		return 0
	}
	if err != nil {
		fmt.Fprintf(errs, "nexus-child: %v\n", err)
		return unstarted(err)
	}
	defer a.close()
	a.options.Ending = lastResort
	err = child.Serve(ctx, stdin, stdout, a.options)
	if errors.Is(err, foreign.ErrEnded) {
		fmt.Fprintf(errs, "nexus-child: %v\n", err)
		return protocol.ExitProgram
	}
	if err != nil {
		log.Warn("stopped serving", zap.Error(err))
		return 1
	}
	return 0
}

// printError is the exit status after something was printed for people, with err of its write.
func printError(errs io.Writer, what string, err error) int {
	switch {
	case errors.Is(err, syscall.EPIPE): // its reader has seen enough: as a shell calls the end by SIGPIPE
		return 128 + int(syscall.SIGPIPE)
	case err != nil:
		fmt.Fprintf(errs, "nexus-child: %s: %v\n", what, err)
		return 1
	}
	return 0
}

// unstarted is the exit status of a child that could not start (SPEC §3.9).
func unstarted(err error) int {
	switch {
	case errors.Is(err, journal.ErrInUse):
		return protocol.ExitSessionInUse
	case journal.Unreadable(err):
		return protocol.ExitSessionDamaged
	}
	if _, newer := errors.AsType[*homeformat.NewerError](err); newer {
		return protocol.ExitHomeNewer
	}
	return 2
}

// lastResort ends the process, whatever still waits in it: a disk that hangs
// must not keep a child that was told to end or that lost its parent (SPEC
// §3.9).
func lastResort(lost error) {
	status := 0
	if lost != nil {
		status = 1
	}
	time.AfterFunc(child.DefaultGrace+400*time.Millisecond, func() { os.Exit(status) })
}

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

// runSchema is nexus-child schema: it prints the JSON Schema of the frames (SPEC §3.2).
// It returns the exit status.
func runSchema(args []string, stdout, errs io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(errs, "nexus-child: schema takes no arguments\nTry nexus-child --help.\n")
		return 2
	}
	text, err := json.Marshal(schema.Child(), jsontext.WithIndent("  "))
	if err == nil {
		_, err = stdout.Write(append(text, '\n'))
	}
	return printError(errs, "schema", err)
}
