package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// nodesTable writes what list_nodes says, with a mark at the machine that answers.
func nodesTable(p *printer, nodes api.ListNodesResult, _ []string) error {
	rows := [][]string{{"NODE", "STATE", "AGENTS", "MAX", "PROCESSORS", "FREE MEMORY", "VERSION", "LABELS"}}
	for _, n := range nodes.Nodes {
		name := n.Node
		if name == nodes.Node {
			name += " *"
		}
		processors := fmt.Sprint(n.Processors)
		if n.LastHeard == nil { // no more is known of it than its name, and what it has
			processors = "-"
		}
		rows = append(rows, []string{
			name, n.State, fmt.Sprint(n.Agents), orDash(n.MaxAgents), processors, freeMemory(n), orDash(&n.Version), labelsOf(n.Labels),
		})
	}
	if err := p.Listing(rows); err != nil || nodes.Problem == nil {
		return err
	}
	return p.Printf("%s: %s\n", nodes.Node, *nodes.Problem)
}

// DrainHelp is what the verb drain says beside its line.
const DrainHelp = "Hands over the agents of MACHINE, of the server that is asked by default, to other machines of the cluster that share\n" +
	"their directories (nexus serve --shared-path), each between two turns, and waits until none is left. The machine gets no\n" +
	"new agents by place, also after a restart, until --undo. Agents that no other machine can have stay, and are listed.\n" +
	"Whoever does not want to wait may interrupt it: the machine goes on."

// drain is the verb that hands over the agents of a machine.
type drain struct{ undo bool }

func (v *drain) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.undo, "undo", false, "have the machine take agents again")
}

// drainWait is how long one call of it waits, in seconds.
const drainWait = 2

func (v *drain) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	p := api.DrainNodeParams{Undo: &v.undo, WaitSeconds: new(uint64(drainWait))}
	if len(args) == 1 {
		p.Node = &args[0]
	}
	var told string
	for {
		result, err := client.Do(ctx, c, "", api.DrainNode, p)
		if err != nil {
			return err
		}
		if v.undo || result.Left == 0 {
			return a.drained(result)
		}
		now := fmt.Sprintf("%s: %d handed over, %d left, of which %d have a turn; %d stay\n", result.Node, result.HandedOver, result.Left, result.InTurn, result.Bound)
		if now != told {
			told = now
			if _, err := io.WriteString(a.Stderr, now); err != nil {
				return err
			}
		}
	}
}

// drained writes how a drain has ended.
func (a *App) drained(result api.DrainNodeResult) error {
	switch {
	case a.Structured():
		return a.PrintValue(result)
	case !result.Draining:
		return a.Printf("%s takes agents\n", result.Node)
	}
	if err := a.Printf("%s drains: %d handed over, %d stay\n", result.Node, result.HandedOver, result.Bound); err != nil || result.Bound == 0 {
		return err
	}
	rows := [][]string{{"AGENT", "STAYS, AS"}}
	for _, b := range result.BoundAgents {
		rows = append(rows, []string{b.AgentID, b.Reason})
	}
	return a.Listing(rows)
}

// LabelHelp is what the verb label says beside its line.
const LabelHelp = "LABEL is NAME=VALUE, which MACHINE has from now on, or NAME-, which it has no more; without any, its labels are listed. The machine\n" +
	"is that of the server that is asked if the first argument is a LABEL. What is changed goes over nexus serve --label, also\n" +
	"after a restart. Agents that are there stay where they are."

// label is the verb that changes the labels of a machine.
func label(ctx context.Context, a *App, c *client.Client, args []string) error {
	p := api.LabelNodeParams{Set: &map[string]string{}, Remove: &[]string{}}
	if len(args) > 0 && !strings.Contains(args[0], "=") && !strings.HasSuffix(args[0], "-") {
		p.Node, args = &args[0], args[1:]
	}
	for _, arg := range args {
		name, value, sets := strings.Cut(arg, "=")
		before, removes := strings.CutSuffix(arg, "-")
		switch {
		case sets:
			(*p.Set)[name] = value
		case removes:
			*p.Remove = append(*p.Remove, before)
		default:
			return Usage("label: %q is neither NAME=VALUE nor NAME-", arg)
		}
	}
	result, err := client.Do(ctx, c, "", api.LabelNode, p)
	switch {
	case err != nil:
		return err
	case a.Structured():
		return a.PrintValue(result)
	}
	return a.Printf("%s: %s\n", result.Node, labelsOf(result.Labels))
}

// RemoveHelp is what the verb remove says beside its line.
const RemoveHelp = "MACHINE is lost for good, has ended, or drains and has no agents left (drain); --force also removes one that is up, and ends its\n" +
	"server. Another machine is asked, and a majority must be there without MACHINE. What the machines keep gets its copies on those\n" +
	"that are left, or on the next one that joins, and agents go on at others as after a loss. Agents that no machine can have are\n" +
	"listed: they wait for a machine of that name. It waits a minute until all is settled; the same again goes on. MACHINE joins\n" +
	"again only with another certificate (nexus cluster init)."

// remove is the verb that removes a machine.
type remove struct{ force bool }

func (v *remove) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.force, "force", false, "remove a machine that is up, with the agents that it has")
}

// removeWait is how long one call of it waits, in seconds, and removeCalls how many there are.
const (
	removeWait  = 2
	removeCalls = 30
)

func (v *remove) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	p := api.RemoveNodeParams{Node: args[0], Force: &v.force, WaitSeconds: new(uint64(removeWait))}
	var told string
	var result api.RemoveNodeResult
	for call := 0; call < removeCalls && !result.Settled; call++ {
		var err error
		if result, err = client.Do(ctx, c, "", api.RemoveNode, p); err != nil {
			return err
		}
		if now := strings.Join(result.Unsettled, "; "); now != "" && now != told {
			told = now
			if _, err := fmt.Fprintf(a.Stderr, "%s: %s\n", result.Node, now); err != nil {
				return err
			}
		}
	}
	if err := a.removed(result); err != nil || result.Settled {
		return err
	}
	return fmt.Errorf("%s is removed, and not all is settled: the same command goes on", result.Node)
}

// removed writes how a removal has ended.
func (a *App) removed(result api.RemoveNodeResult) error {
	if a.Structured() {
		return a.PrintValue(result)
	}
	nats := ""
	if result.OutsideNATS {
		nats = "; the servers of NATS are its operator's, and stay as they are"
	}
	if err := a.Printf("%s is removed%s\n", result.Node, nats); err != nil {
		return err
	}
	a.note("who has its disk has the full key of the cluster still: if that may be somebody else, replace it by %s", a.Call("keys rotate"))
	if result.Waiting == 0 {
		return nil
	}
	rows := [][]string{{"AGENT", "WAITS FOR"}}
	for _, agent := range result.WaitingAgents {
		rows = append(rows, []string{agent, "a machine " + result.Node + ", as no other one shares its directory"})
	}
	return a.Listing(rows)
}

// freeMemory is what programs of a machine could still get of its memory.
func freeMemory(n api.NodeInfo) string {
	if n.MemoryBytes == nil || n.FreeMemoryBytes == nil {
		return "-"
	}
	const gib = 1 << 30
	return fmt.Sprintf("%.1f of %.1f GiB", float64(*n.FreeMemoryBytes)/gib, float64(*n.MemoryBytes)/gib)
}

// labelsOf are labels of a machine, by name.
func labelsOf(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	text := strings.Join(all, " ")
	return orDash(&text)
}
