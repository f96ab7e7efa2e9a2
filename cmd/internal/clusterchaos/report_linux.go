package clusterchaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is what came of a run.
type Report struct {
	Options    Options
	Facts      map[string]int  // how often what happened
	Operations int             // that were compared with the model
	Back       time.Duration   // after the attack, until every agent answered at every machine
	TakeOvers  []time.Duration // how long each agent was not answered for that was taken over, the shortest first
	NotTried   []string        // harm that was not possible, and why
	Broken     []string        // what was promised otherwise
}

// Passed reports whether every promise was kept.
func (r *Report) Passed() bool { return len(r.Broken) == 0 }

// Print writes the table, and below it what was broken.
func (r *Report) Print(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, what := range slices.Sorted(maps.Keys(r.Facts)) {
		fmt.Fprintf(tab, "%s\t%d\n", what, r.Facts[what])
	}
	fmt.Fprintf(tab, "after the attack all answered within\t%.1f s\n", r.Back.Seconds())
	if n := len(r.TakeOvers); n > 0 {
		fmt.Fprintf(tab, "agents taken over, and answered for after: p50, p99\t%d, %.1f s, %.1f s\n", n, r.TakeOvers[n/2].Seconds(), r.TakeOvers[n*99/100].Seconds())
	}
	fmt.Fprintf(tab, "operations compared with the model of a log\t%d\n", r.Operations)
	fmt.Fprintf(tab, "promises broken\t%d\n", len(r.Broken))
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, one := range r.NotTried {
		fmt.Fprintf(w, "not tried: %s\n", one)
	}
	for _, one := range r.Broken[:min(len(r.Broken), 40)] {
		fmt.Fprintf(w, "  %s\n", one)
	}
	_, err := fmt.Fprintf(w, "\nto repeat the plan: --cluster %d --seed %d --agents %d --minutes %g\n",
		r.Options.Machines, r.Options.Seed, r.Options.Agents, r.Options.Time.Minutes())
	return err
}
