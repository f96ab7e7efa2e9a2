// Nexus-cluster is a machine's part of a cluster: a server of NATS with JetStream, which nexus serve --cluster starts. It
// reads one line of JSON on stdin, which says what it is; writes one on stdout, where it takes clients; and ends with stdin. See
// SUPERVISION.md §5.10.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // that of libraries, which is silenced
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/pflag"

	"nexus.internal/cmd/internal/badflag"
	"nexus.internal/cmd/internal/logsink"
	"nexus.internal/cmd/internal/version"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/engine"
	"nexus.internal/supervisor/cluster/identity"
)

const usage = `nexus-cluster is a machine's part of a cluster of nexus servers. nexus serve --cluster starts it.

Usage: nexus-cluster [flags]
       nexus-cluster version (the same as --version)

It reads what it is from the first line of stdin, and ends with stdin:
  {"cluster":"farm","machine":"a","listen":"127.0.0.1:8766","join":["127.0.0.1:8766","127.0.0.1:8767"],"dir":"DIR","socket":"PATH","certificates":"DIR"}
It writes where it takes clients, and the token that they send:
  {"socket":"PATH","token":"…"}

Flags:
%s`

// checkEvery is how often is looked whether the server keeps what it is told.
const checkEvery = time.Second

// maxLine bounds the line on stdin, in bytes: the addresses of a hundred machines are much less.
const maxLine = 64 << 10

func main() {
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// flags are what the command line says.
type flags struct {
	level   logsink.Level
	format  logsink.Format
	version bool

	set *pflag.FlagSet
}

// parse reads the command line. pflag.ErrHelp asks for help.
func parse(args []string) (*flags, error) {
	f := &flags{set: pflag.NewFlagSet("nexus-cluster", pflag.ContinueOnError)}
	f.set.SetOutput(io.Discard)
	f.set.Usage = func() {}
	f.set.Var(&f.level, "log-level", "lowest `LEVEL` of lines in the log on stderr: debug, info, warn or error")
	f.set.Var(&f.format, "log-format", "`FORMAT` of the log: auto (text on a terminal, else json), text or json")
	f.set.BoolVar(&f.version, "version", false, "print the version and exit")
	switch err := f.set.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return f, err
	case err != nil:
		return f, errors.New(badflag.Problem(err, f.set))
	}
	switch rest := f.set.Args(); {
	case len(rest) == 1 && rest[0] == "help":
		return f, pflag.ErrHelp
	case len(rest) == 1 && rest[0] == "version":
		f.version = true
	case len(rest) > 0:
		return f, fmt.Errorf("unexpected argument %q", rest[0])
	}
	return f, nil
}

// run is the whole program but for signals, which end ctx. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	f, err := parse(args)
	errs := logsink.New(stderr, f.format)
	defer errs.Flush()
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, err = fmt.Fprintf(stdout, usage, f.set.FlagUsages())
	case err != nil:
		fmt.Fprintf(errs, "nexus-cluster: %v\nTry nexus-cluster --help.\n", err)
		return 2
	case f.version:
		_, err = fmt.Fprintf(stdout, "nexus-cluster version %s\n", version.Of())
	default:
		err = serve(ctx, f, errs, bufio.NewReaderSize(stdin, maxLine), stdout)
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintf(errs, "nexus-cluster: %v\n", err)
		return 1
	}
	return 0
}

// closePatience bounds the end of an engine: one that stands still is ended with the process.
const closePatience = 30 * time.Second

func closeWithin(e *engine.Engine) {
	closed := make(chan struct{})
	go func() { // which ends with the engine, or with the process
		e.Close()
		close(closed)
	}()
	limit := time.NewTimer(closePatience)
	defer limit.Stop()
	select {
	case <-closed:
	case <-limit.C:
	}
}

// serve runs the engine that the first line of stdin describes, until stdin or ctx ends.
func serve(ctx context.Context, f *flags, errs logsink.Sink, stdin *bufio.Reader, stdout io.Writer) error {
	o, err := readOptions(stdin)
	if err != nil {
		return err
	}
	o.Log = errs.Logger(f.level).Named("cluster")
	lock, err := lockDir(o.Dir)
	if err != nil {
		return err
	}
	defer safefile.Release(lock)
	ended := make(chan struct{})
	go func() { // which ends with stdin, or with the process
		_, _ = io.Copy(io.Discard, stdin)
		close(ended)
	}()
	e, err := engine.Start(o)
	if err != nil {
		return err
	}
	defer closeWithin(e)
	ready, err := e.Ready()
	if err != nil {
		return err
	}
	line, err := json.Marshal(ready)
	if err != nil {
		return err
	}
	if _, err := stdout.Write(append(line, '\n')); err != nil {
		return err
	}
	every := time.NewTicker(checkEvery)
	defer every.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		case <-every.C:
			if err := e.Check(); err != nil { // whoever started us does so again
				return err
			}
		}
	}
}

// readOptions reads the line that says what to run.
func readOptions(stdin *bufio.Reader) (o engine.Options, err error) {
	line, err := stdin.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return o, fmt.Errorf("the line on stdin has more than %d bytes", maxLine)
	case err != nil && (err != io.EOF || len(line) == 0): //nolint:errorlint // as a reader says that it has ended
		return o, fmt.Errorf("read the line on stdin that says which machine this is: %w", err)
	}
	var said cluster.EngineOptions
	if err := strict.Unmarshal(line, &said, strict.RejectUnknown); err != nil {
		return o, fmt.Errorf("the line on stdin: %w; if nexus serve is of another version than nexus-cluster, start it again", err)
	}
	o = engine.Options{Name: said.Cluster, Machine: said.Machine, Listen: said.Listen, Join: said.Join, Dir: said.Dir, Socket: said.Socket}
	if said.Certificates != nil {
		o.TLS, err = identity.TLS(*said.Certificates, said.Machine)
	}
	return o, err
}

// lockDir makes the directory, and sees to it that one process alone uses it.
func lockDir(dir string) (*os.File, error) {
	if dir == "" {
		return nil, errors.New("there is no directory for what the machines agree on")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := safefile.Open(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := safefile.Lock(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("another nexus-cluster uses %s: %w", dir, err)
	}
	return file, nil
}
