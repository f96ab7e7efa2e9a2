package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what came of a run.
type Report struct {
	Plan     Plan
	Facts    map[string]int // how often what happened; see Tally
	Broken   map[Promise][]string
	Counts   map[Promise]int // violations of each, also of those that Broken does not tell
	Quiet    Latency         // of the control agents before the attack
	Chaos    Latency         // and under it
	NotDone  []string        // what could not be tried here, and why
	NotTried []string        // what was not tried, so that nothing is promised
	Program  string          // flags by which the agents have theirs, after a space; "" for those of nexus
	Folder   string          // what is kept, "" if nothing is
}

// Report judges what was observed so far.
func (c *Checker) Report(p Plan) *Report {
	broken, counts := c.finish()
	return &Report{
		NotTried: c.missingFacts(), Plan: p, Facts: maps.Clone(c.facts), Broken: broken, Counts: counts, Quiet: c.latency(false), Chaos: c.latency(true),
	}
}

// missingFacts tells which attacks are missing, without which a promise that was kept
// says nothing. The disk may be one that cannot be filled.
func (c *Checker) missingFacts() (missing []string) {
	did := func(d Action) bool { return c.facts["deeds: "+string(d)] > 0 }
	for _, one := range []struct {
		what string
		done bool
	}{
		{"no process of an agent was killed", did(Kill)},
		{"the server was not killed and started again", c.downs > 0 && c.facts["server: started"] > c.downs},
		{"the disk was not filled", did(FillDisk) || c.facts["deeds: "+string(FillDisk)+notPossible] > 0},
		{"no send was answered under attack", c.latency(true).Tries > 0},
	} {
		if !one.done {
			missing = append(missing, one.what)
		}
	}
	return missing
}

// notPossible follows an action in the table that was skipped.
const notPossible = ", not possible then"

// tallied is what a report counts of records, as "section: what"; of those of other kinds
// tally knows it.
var tallied = map[RecordKind]string{
	Lost: "sends: answer lost with the server", Found: "sends: found in a conversation", Subscribed: "events: subscriptions",
	Seen: "events: seen", ServerUp: "server: started", ServerDown: "server: killed",
}

// tally counts what a report has in its table, as "section: what".
func (c *Checker) tally(r Record) {
	if fact, ok := tallied[r.Kind]; ok {
		c.facts[fact]++
	}
	switch {
	case r.Kind == Sent && r.Try == 1:
		c.facts["sends: asked"]++
	case r.Kind == Sent:
		c.facts["sends: asked again by their request_id"]++
	case r.Kind == Answered && !c.send(r).answered:
		c.facts["outcomes: "+r.Outcome]++
	case r.Kind == Refused:
		c.facts["refusals: "+r.Type]++
	case r.Kind == Did:
		c.facts["deeds: "+string(r.Action)]++
	case r.Kind == Skipped:
		c.facts["deeds: "+string(r.Action)+notPossible]++
	case r.Kind == Seen && r.Type == "gap":
		c.facts["events: gaps"]++
	case r.Kind == Looked:
		c.facts["looked for: "+r.Text]++
	}
	if r.Kind == Answered && r.Replayed {
		c.facts["sends: replayed"]++
	}
}

// Passed reports whether every promise did, and was tried.
func (r *Report) Passed() bool { return len(r.Counts) == 0 && len(r.NotTried) == 0 }

// Print writes the table, and below it what was violated.
func (r *Report) Print(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	section := ""
	for _, fact := range slices.Sorted(maps.Keys(r.Facts)) {
		of, what, _ := strings.Cut(fact, ": ")
		if of == section {
			of = ""
		} else {
			section = of
		}
		fmt.Fprintf(tab, "%s\t%s\t%d\n", of, what, r.Facts[fact])
	}
	for _, one := range []struct {
		name string
		l    Latency
	}{{"quiet", r.Quiet}, {"under attack", r.Chaos}} {
		fmt.Fprintf(tab, "control agents\t%s: p50, p99, max of %d sends\t%s %s %s\n",
			one.name, one.l.Tries, short(one.l.P50), short(one.l.P99), short(one.l.Max))
	}
	for _, why := range r.NotDone {
		fmt.Fprintf(tab, "not done here\t%s\t\n", why)
	}
	for _, what := range r.NotTried {
		fmt.Fprintf(tab, "not tried\t%s\t\n", what)
	}
	for _, p := range Promises {
		verdict := "ok"
		if len(r.NotTried) > 0 {
			verdict = "not tried"
		}
		if n := r.Counts[p]; n > 0 {
			verdict = fmt.Sprintf("VIOLATED %d times", n)
		}
		fmt.Fprintf(tab, "promise\t%s\t%s\n", p, verdict)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, p := range Promises {
		if len(r.Broken[p]) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s: not so\n", p)
		for _, fact := range r.Broken[p] {
			fmt.Fprintf(w, "  %s\n", fact)
		}
		if more := r.Counts[p] - len(r.Broken[p]); more > 0 {
			fmt.Fprintf(w, "  and %d more\n", more)
		}
	}
	if r.Folder != "" {
		fmt.Fprintf(w, "\nthe history, the server's logs and its home are in %s\n", r.Folder)
	}
	_, err := fmt.Fprintf(w, "\nto repeat the plan: --seed %d --agents %d --minutes %g%s\n", r.Plan.Seed, r.Plan.Agents, r.Plan.Time.Minutes(), r.Program)
	return err
}

func short(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
