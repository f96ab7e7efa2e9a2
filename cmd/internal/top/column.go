package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

// column is what is told of each agent, and may be sorted by.
type column int

const (
	byAgent column = iota
	byState
	byProcessor
	byMemory
	byTokens
	byCost
	byQueue
	byApprovals
	byRestarts
	columns int = iota
)

var columnNames = [columns]string{"agent", "state", "processor", "memory", "tokens", "cost", "queue", "approvals", "restarts"}

func (c column) String() string { return columnNames[c] }

// Sorts are the names of the columns.
func Sorts() []string { return columnNames[:] }

// columnOf is the column of one of Sorts.
func columnOf(name string) column { return column(slices.Index(columnNames[:], name)) }

// stateOrder begins with the states that a person looks for.
var stateOrder = []string{"failed", "backoff", "busy", "starting", "stopping", "ready", "stopped"}

// compare orders agents by a column: the most first, names and states as they are read.
func (c column) compare(a, b *agent) int {
	byName := strings.Compare(a.AgentID, b.AgentID)
	if c == byState {
		return cmp.Or(cmp.Compare(slices.Index(stateOrder, a.State), slices.Index(stateOrder, b.State)), byName)
	}
	order := cmp.Compare(c.value(b), c.value(a))
	if c == byProcessor { // of one sample there are no percents
		order = cmp.Or(order, cmp.Compare(numberOf(b.CPUSeconds), numberOf(a.CPUSeconds)))
	}
	return cmp.Or(order, byName)
}

// value is what an agent has of a column that is a number; below 0 if that is not known.
func (c column) value(a *agent) float64 {
	switch c {
	case byProcessor:
		return a.percent
	case byMemory:
		return numberOf(a.MemoryBytes)
	case byTokens:
		return numberOf(a.TokensUsed)
	case byCost:
		return numberOf(a.CostUsed)
	case byQueue:
		return float64(a.Queued)
	case byApprovals:
		return float64(a.PendingPermissions)
	case byRestarts:
		return float64(a.Restarts)
	case byAgent, byState:
	}
	return -1
}

func numberOf[N int64 | uint64 | float64](n *N) float64 {
	if n == nil {
		return -1
	}
	return float64(*n)
}

// short is a number in few characters, "-" if it is not known: 812, 12.3k, 4.6M.
func short(n, step float64, units string) string {
	if n < 0 {
		return "-"
	}
	unit := ""
	for len(units) > 0 && n >= 999.5 {
		n, unit, units = n/step, units[:1], units[1:]
	}
	if unit == "" || n >= 99.95 {
		return fmt.Sprintf("%.0f%s", n, unit)
	}
	return fmt.Sprintf("%.1f%s", n, unit)
}

// binary is a number of bytes: 31.2M is that many mebibytes.
func binary(n float64) string { return short(n, 1<<10, "KMGT") }

// decimal is a number of tokens.
func decimal(n float64) string { return short(n, 1000, "kMGT") }

// dollars are US dollars: more digits of a small amount.
func dollars(n float64) string {
	switch {
	case n < 0:
		return "-"
	case n >= 9999.5:
		return "$" + decimal(n)
	case n >= 100:
		return fmt.Sprintf("$%.0f", n)
	case n == 0 || n >= 1:
		return fmt.Sprintf("$%.2f", n)
	}
	return fmt.Sprintf("$%.4f", n)
}

// text is what is shown of a pointer to one, "-" for none.
func text(s *string) string { return cli.Harmless(cmp.Or(protocol.Value(s), "-"), true) }

// seconds is processor time: 0.42s, 12.3s, 2h5m.
func seconds(s *float64) string {
	switch n := numberOf(s); {
	case n < 0:
		return "-"
	case n < 10:
		return fmt.Sprintf("%.2fs", n)
	case n < 100:
		return fmt.Sprintf("%.1fs", n)
	case n < 3600:
		return fmt.Sprintf("%.0fm%02.0fs", float64(int(n)/60), float64(int(n)%60))
	default:
		return fmt.Sprintf("%dh%02dm", int(n)/3600, int(n)%3600/60)
	}
}
