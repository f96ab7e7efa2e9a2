package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// row is one figure of SPEC.md §8.
type row struct {
	figure   string
	measured float64
	floor    float64 // 0 for none
	floorIs  string  // what the floor is; for a figure without one, a remark
	unit     unit
	bound    bound
}

// unit is what a figure counts.
type unit int

const (
	count unit = iota
	perSec
	seconds
	size // bytes
)

// of is a value with its unit, for people.
func (u unit) of(n float64) string {
	switch {
	case u == perSec:
		return fmt.Sprintf("%.0f/s", n)
	case u == seconds && n < 1e-5:
		return fmt.Sprintf("%.3g µs", n*1e6)
	case u == seconds && n < 1e-3:
		return fmt.Sprintf("%.0f µs", n*1e6)
	case u == seconds && n < 1:
		return fmt.Sprintf("%.3g ms", n*1e3)
	case u == seconds:
		return fmt.Sprintf("%.3g s", n)
	case u == size && n >= 1<<20:
		return fmt.Sprintf("%.3g MiB", n/(1<<20))
	case u == size:
		return fmt.Sprintf("%.3g KiB", n/(1<<10))
	case n < 100:
		return fmt.Sprintf("%.3g", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// bound is what a figure should keep to; the zero value is none.
type bound struct {
	on    boundOn
	limit float64
}

type boundOn int

const (
	onNothing  boundOn = iota
	onRatio            // measured ÷ floor is at most the limit
	onRatioMin         // measured ÷ floor is at least the limit
	onMeasured         // measured is at most the limit
)

func ratioAtMost(limit float64) bound  { return bound{onRatio, limit} }
func ratioAtLeast(limit float64) bound { return bound{onRatioMin, limit} }
func atMost(limit float64) bound       { return bound{onMeasured, limit} }

// verdict is the bound as it is printed, and how the figure stands to it.
func (r row) verdict() (limit, verdict string) {
	ratio, limitIs := r.measured/r.floor, r.bound.limit
	switch r.bound.on {
	case onRatio:
		limit, verdict = fmt.Sprintf("≤ %g ×", limitIs), verdictOf(ratio <= limitIs, "over")
	case onRatioMin:
		limit, verdict = fmt.Sprintf("≥ %g ×", limitIs), verdictOf(ratio >= limitIs, "under")
	case onMeasured:
		limit, verdict = "≤ "+r.unit.of(limitIs), verdictOf(r.measured <= limitIs, "over")
	case onNothing:
	}
	return limit, verdict
}

func verdictOf(within bool, otherwise string) string {
	if within {
		return "within"
	}
	return otherwise
}

// legend is what a stranger must know to read the table.
const legend = `What nexus costs, each figure beside the least that the bare machine needs for
the same job (its floor). Both are taken in turns, and these are the medians.

  http echo   a POST to a bare net/http server, which passes the body through
              two pipes to a bare Go process and back
  fork-exec   a bare Go process started, until its first line has been read
  lines       lines split off a pipe that a bare Go process writes to, each by
              a write of its own, as a child must write its frames
  kill, wait  a bare Go process killed, until its parent has waited for it
  bare parent of 8 bare processes, killed, until the kernel has ended all nine
  quiet       the same figure, without the trouble
  fdatasync   256 bytes appended to a file, and fdatasync, after an http echo
              that is not counted
  bare GET,   as many bytes got from a bare net/http server, and that file of each
  /proc/PID/stat  agent's process read
  request,    a message by NATS from one machine of a cluster to another and back;
  publish     one that a majority of three servers of NATS has synced
  readdir,    the names in a directory, and the size and time of each file
  stat

Processor time is that of one process, with its time in the kernel and without
its children. System calls are counted where the kernel's tracing can be used:
by root, with tracefs mounted at /sys/kernel/tracing.
Agents answer by the offline model. Short means that an agent is made anew for
every 25 sends, synced that its journal is on the disk before a turn ends.
Memory is PSS: a page that n processes share counts as 1/n in each. A bound
with × is on the ratio, any other on the figure itself. Growth is the slope of
a figure in logarithms: 0 says that it stays, 1 that it is proportional.
`

func render(w io.Writer, rows []row) error {
	tab := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tab, "figure\tmeasured\tfloor\t\tratio\tbound\tverdict")
	for _, r := range rows {
		floor, ratio := "", ""
		if r.floor > 0 {
			floor, ratio = r.unit.of(r.floor), fmt.Sprintf("%.3g", r.measured/r.floor)
		}
		limit, verdict := r.verdict()
		measured := r.unit.of(r.measured)
		if math.IsNaN(r.measured) {
			measured = "-"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.figure, measured, floor, r.floorIs, ratio, limit, verdict)
	}
	return tab.Flush()
}
