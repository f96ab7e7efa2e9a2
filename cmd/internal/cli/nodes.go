package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nexus.internal/bridge/api"
)

// nodesTable writes what list_nodes says, with a mark at the machine that answers.
func nodesTable(p *printer, nodes api.ListNodesResult, _ []string) error {
	rows := [][]string{{"NODE", "STATE", "AGENTS", "MAX", "PROCESSORS", "FREE MEMORY", "VERSION", "LABELS"}}
	for _, n := range nodes.Nodes {
		name := n.Node
		if name == nodes.Node {
			name += " *"
		}
		rows = append(rows, []string{
			name, n.State, fmt.Sprint(n.Agents), orDash(n.MaxAgents), fmt.Sprint(n.Processors), freeMemory(n), orDash(&n.Version), labelsOf(n),
		})
	}
	if err := p.Listing(rows); err != nil || nodes.Problem == nil {
		return err
	}
	return p.Printf("%s: %s\n", nodes.Node, *nodes.Problem)
}

// freeMemory is what programs of a machine could still get of its memory.
func freeMemory(n api.NodeInfo) string {
	if n.MemoryBytes == nil || n.FreeMemoryBytes == nil {
		return "-"
	}
	const gib = 1 << 30
	return fmt.Sprintf("%.1f of %.1f GiB", float64(*n.FreeMemoryBytes)/gib, float64(*n.MemoryBytes)/gib)
}

// labelsOf are the labels of a machine, by name.
func labelsOf(n api.NodeInfo) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(n.Labels)) {
		all = append(all, name+"="+n.Labels[name])
	}
	text := strings.Join(all, " ")
	return orDash(&text)
}
