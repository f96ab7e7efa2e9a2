package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// options are the sizes of a run.
type options struct {
	bin    string // folder of nexus and nexus-child
	agents int    // live agents for the memory figures
	sends  int    // requests per latency figure
	lines  int    // lines of the stream figures
	spawns int    // process starts
}

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) > 2 && os.Args[1] == roleArg {
		return play(os.Args[2], os.Args[3:])
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nexus-bench:", err)
		return 1
	}
	var o options
	flag.StringVar(&o.bin, "bin", filepath.Dir(self), "folder of nexus and nexus-child")
	flag.IntVar(&o.agents, "agents", 100, "live agents for the memory figures")
	flag.IntVar(&o.sends, "sends", 1500, "requests for each latency figure")
	flag.IntVar(&o.lines, "lines", 200_000, "lines for the stream figures")
	flag.IntVar(&o.spawns, "spawns", 40, "process starts")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := bench(ctx, self, o); err != nil {
		fmt.Fprintln(os.Stderr, "nexus-bench:", err)
		return 1
	}
	return 0
}
