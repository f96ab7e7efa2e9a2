package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// bench takes all figures and prints them.
func bench(ctx context.Context, self string, o options) error {
	dir, err := os.MkdirTemp("", "nexus-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	floor, err := measureFloors(ctx, self, dir, o)
	if err != nil {
		return fmt.Errorf("measure the floors: %w", err)
	}
	nexus, err := measureNexus(ctx, dir, o)
	if err != nil {
		return fmt.Errorf("measure nexus: %w", err)
	}
	return render(os.Stdout, rows(floor, nexus, o))
}

// row is one figure of SPEC §8 beside its floor.
type row struct {
	figure  string
	floor   string // what the floor is
	at      float64
	nexus   float64
	unit    func(float64) string
	bound   float64 // on nexus ÷ floor
	atLeast bool    // the bound is a lower one
}

func rows(f floors, n figures, o options) []row {
	synced := f.http.Seconds()*2.5 + f.sync.Seconds()*1.5
	return []row{
		{"send, p50", "http + pipe echo", f.http.Seconds(), n.send.Seconds(), seconds, 2.5, false},
		{"send, journal synced, p50", "2.5 × http + pipe echo, + 1.5 × append and fdatasync", synced, n.sendSync.Seconds(), seconds, 1, false},
		{fmt.Sprintf("sends a second, %d agents", rateAgents), "http + pipe echoes a second", f.httpRate, n.rate, perSec, 0.5, true},
		{"frames a second, child to SSE client", "lines a second off a pipe, a write each", f.lines, n.frames, perSec, 0.08, true},
		{"the same", "lines a second off a pipe, 500 in a write", f.bulk, n.frames, perSec, 0, true},
		{"create_agent, p50", "fork, exec, first line", f.spawn.Seconds(), n.create.Seconds(), seconds, 2, false},
		{fmt.Sprintf("send with %d live agents, p50", o.agents), "send with " + fmt.Sprint(rateAgents), n.send.Seconds(), n.sendMany.Seconds(), seconds, 1.3, false},
		{fmt.Sprintf("idle child of %d, PSS", o.agents), "3 MiB", 3 << 20, float64(n.childPSS), size, 1, false},
		{"server for each agent, PSS", "100 KiB", 100 << 10, float64(n.perAgent), size, 1, false},
	}
}

func render(w io.Writer, rows []row) error {
	tab := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tab, "figure\tnexus\tfloor\t\tratio\tbound\t")
	for _, r := range rows {
		ratio, sign, mark := r.nexus/r.at, "≤", ""
		if r.atLeast {
			sign = "≥"
		}
		if (ratio > r.bound) != r.atLeast {
			mark = "over"
			if r.atLeast {
				mark = "under"
			}
		}
		bound := fmt.Sprintf("%s %.2f", sign, r.bound)
		if r.bound == 0 {
			bound = ""
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%.3f\t%s\t%s\n", r.figure, r.unit(r.nexus), r.unit(r.at), r.floor, ratio, bound, mark)
	}
	return tab.Flush()
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	return d.Round(d / 100 / 1000 * 1000).Round(time.Microsecond).String()
}

func perSec(n float64) string { return fmt.Sprintf("%.0f/s", n) }

func size(n float64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%.2f MiB", n/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", n/(1<<10))
}
