package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"nexus.internal/cmd/internal/progress"
	"nexus.internal/cmd/internal/version"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 2 is usage.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 1 && args[0] == roleArg {
		return play(args[1:])
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(stderr, "nexus-bench:", err)
		return 1
	}
	flags := flag.NewFlagSet("nexus-bench", flag.ContinueOnError)
	var help strings.Builder
	flags.SetOutput(&help)
	bin := flags.String("bin", filepath.Dir(self), "folder of nexus, nexus-child and nexus-bench-floor")
	quick := flags.Bool("quick", false, "fewer rounds and 100 agents: in half a minute, and rougher")
	agents := flags.Int("agents", 0, "live agents, at most (default 5000, or 100 with -quick)")
	only := flags.String("only", "", "measure only figures whose names in the progress contain this, such as sends")
	svg := flags.String("svg", "", "file for a picture of what is measured by -only scale")
	tell := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		if _, err := io.WriteString(stdout, help.String()); err != nil {
			fmt.Fprintln(stderr, "nexus-bench:", err)
			return 1
		}
		return 0
	case err != nil:
		_, _ = io.WriteString(stderr, help.String())
		return 2
	case *tell:
		if _, err := fmt.Fprintln(stdout, "nexus-bench version", version.Of()); err != nil {
			fmt.Fprintln(stderr, "nexus-bench:", err)
			return 1
		}
		return 0
	}
	b := &bench{bin: *bin, self: self, size: thorough, only: *only, svg: *svg, progress: stderr}
	if err := b.check(*agents, flags); err != nil {
		fmt.Fprintf(stderr, "nexus-bench: %v\n", err)
		return 2
	}
	if *quick {
		b.size = rough
	}
	if *agents > 0 {
		b.size.agents = *agents
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	if err := report(ctx, stdout, b); err != nil {
		fmt.Fprintln(stderr, "nexus-bench:", err)
		return 1
	}
	return 0
}

// sizes say how much is measured.
type sizes struct {
	rounds   int // of the figures that take milliseconds
	starts   int // rounds of those that start a process
	agents   int // live agents, at most
	idle     int // connections that are kept
	requests int // of the floor in one round
	talks    int // short conversations in one round
	lines    int // of a long turn
	endless  int // bytes of a line without an end
	deaths   int // of children that are noticed
	ends     int // of servers with agents
	kills    int // under load
	loops    int // agents that crash and crash again
	beside   int // sends, in one round, beside agents that misbehave

	scaleSends   int // to each number of agents
	besideRounds int // in quiet and in trouble

	idleAgents int           // that nobody asks anything
	idleTime   time.Duration // for how long

	clusterRounds int
	clusterSends  int // in one round
	machines      int // that are killed
	takenOver     int // agents of each
	drained       int // agents of a machine
}

var (
	thorough = sizes{
		rounds: 20, starts: 60, agents: 5000, idle: 5000, requests: 400, talks: 4, lines: 200_000, endless: 1 << 30,
		deaths: 300, ends: 10, kills: 1000, loops: 50, beside: 300, besideRounds: 10, scaleSends: 1000, idleAgents: 50, idleTime: 30 * time.Second, clusterRounds: 6, clusterSends: 100, machines: 10, takenOver: 50, drained: 300,
	}
	rough = sizes{
		rounds: 4, starts: 12, agents: 100, idle: 1000, requests: 200, talks: 2, lines: 200_000, endless: 256 << 20,
		deaths: 40, ends: 2, kills: 60, loops: 50, beside: 100, besideRounds: 4, scaleSends: 300, idleAgents: 10, idleTime: 5 * time.Second, clusterRounds: 3, clusterSends: 50, machines: 3, takenOver: 20, drained: 30,
	}
)

// bench is one run. Its fields do not change once it has begun, but for the curves.
type bench struct {
	bin      string // folder of the programs
	self     string // this program
	dir      string // for whatever is written, removed in the end
	size     sizes
	only     string // part of the names of what is measured
	svg      string // file of the picture; "" for none
	progress io.Writer
	curves   []*curve // that were measured
}

// floor is the program that the bare processes are made of.
func (b *bench) floor() string { return filepath.Join(b.bin, "nexus-bench-floor") }

// report measures and prints. What could not be measured is an error, and the
// rest is printed all the same.
func report(ctx context.Context, w io.Writer, b *bench) error {
	if _, err := os.Stat(b.floor()); err != nil {
		return fmt.Errorf("find the bare process (make bench builds it): %w", err)
	}
	dir, err := os.MkdirTemp("", "nexus-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	if _, err := fmt.Fprint(w, legend, "\n"); err != nil {
		return err
	}
	rows, err := b.measure(ctx)
	err = errors.Join(err, render(w, rows))
	if b.svg == "" || len(b.curves) == 0 {
		return err
	}
	var picture bytes.Buffer
	return errors.Join(err, draw(&picture, b.curves), os.WriteFile(b.svg, picture.Bytes(), 0o644))
}

// check finds what cannot be meant by the command line.
func (b *bench) check(agents int, flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: see nexus-bench -help", flags.Arg(0))
	}
	empty := ""
	flags.Visit(func(f *flag.Flag) {
		if f.Value.String() == "" {
			empty = f.Name
		}
	})
	if empty != "" {
		return fmt.Errorf("-%s is empty", empty)
	}
	if agents < 0 {
		return fmt.Errorf("-agents must be from 0 on, not %d", agents)
	}
	if b.svg != "" && b.only != "" && !strings.HasPrefix(b.only, "scale") {
		return fmt.Errorf("-svg needs the figures of scale, and -only %s leaves them out", b.only)
	}
	var names []string
	for _, part := range b.groups() {
		names = append(names, part.name)
	}
	if !strings.Contains(strings.Join(names, "\n"), b.only) {
		return fmt.Errorf("nothing is called %q; there are: %s", b.only, strings.Join(names, ", "))
	}
	return nil
}

// group is what is measured together, on a server of its own.
type group struct {
	name  string
	take  func(context.Context, *server) ([]row, error)
	flags []string // of the server; nil for a part that starts its own, if any
}

// run measures a part.
func (b *bench) run(ctx context.Context, p group) (_ []row, err error) {
	if p.flags == nil {
		return p.take(ctx, nil)
	}
	s, err := b.startServer(ctx, p.flags...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return p.take(ctx, s)
}

func (b *bench) groups() []group {
	synced, unsynced := []string{}, []string{unsynced}
	return []group{
		{"sends", b.sends, synced},
		{"processor", b.processor, unsynced},
		{"starts", b.starts, synced},
		{"sessions", b.sessions, nil},
		{"lists", b.listing, synced},
		{"crashes", b.crashes, synced},
		{"deaths", b.deaths, unsynced},
		{"servers killed", b.killedServers, nil},
		{"kills under load", b.kills, nil},
		b.beside(fmt.Sprint(b.size.loops, " crash loops"), crashLoops(b.size.loops), nil),
		b.beside("a flood", endlessTurn("", "flood 10000000"), nil),
		b.beside("a fork storm", endlessTurn(`,"preset":"sandboxed"`, "run "+stormCommand), nil),
		b.beside("a session of 100 MiB that is restored", restores, b.saveBig),
		b.beside("list_sessions over 10,000", lists, func(s *server) error { return b.fill(filepath.Join(s.home, "sessions"), savedSessions) }),
		b.scaling("agents", scaleAgents),
		b.scaling("streams", scaleStreams),
		b.scaling("deltas", scaleDeltas),
		b.scaling("messages", scaleMessages),
		{"idle connections", b.idleConnections, synced},
		{"lines without an end", b.endless, nil},
		{"a cluster", b.cluster, unsynced},
		{"takeovers", func(ctx context.Context, _ *server) ([]row, error) { return takeovers(ctx, b) }, nil},
		{"drains", func(ctx context.Context, _ *server) ([]row, error) { return drains(ctx, b) }, nil},
	}
}

func (b *bench) measure(ctx context.Context) (rows []row, err error) {
	began := time.Now()
	groups := slices.DeleteFunc(b.groups(), func(part group) bool { return !strings.Contains(part.name, b.only) })
	bar := progress.Begin(b.progress, os.Getenv("TERM"), len(groups), "groups")
	defer bar.End()
	out := bar.Beside(b.progress)
	for i, part := range groups {
		if ctx.Err() != nil {
			return rows, errors.Join(err, ctx.Err())
		}
		bar.At(i, part.name)
		fmt.Fprintf(out, "%4.0f s  %s\n", time.Since(began).Seconds(), part.name)
		got, failed := b.run(ctx, part)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("measure %s: %w", part.name, failed))
		}
		rows = append(rows, got...)
	}
	fmt.Fprintf(out, "%4.0f s  done\n\n", time.Since(began).Seconds())
	return rows, err
}
