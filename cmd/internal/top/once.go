package top

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
)

// Options say how the agents are shown.
type Options struct {
	// Sort is the column that the agents are sorted by: one of Sorts.
	Sort string
	// App prints.
	App *cli.App
	// Terminal is where a person types, for a Screen.
	Terminal *os.File
}

// Once prints a table of the agents, or as a value what list_agents says, in that order.
func Once(ctx context.Context, c *client.Client, o Options) error {
	listed, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil {
		return err
	}
	o.App.NoteUnreached(listed.UnreachableNodes)
	var b board
	b.take(listed.Agents, 0)
	agents := b.sorted(columnOf(o.Sort), false)
	if o.App.Structured() {
		for i, a := range agents {
			listed.Agents[i] = a.AgentInfo
		}
		return o.App.PrintValue(listed)
	}
	if len(agents) == 0 {
		return o.App.Printf("no agents\n")
	}
	var out strings.Builder
	tab := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	machines := cli.OnMachines(listed.Agents)
	node := func(name string) string {
		if !machines {
			return ""
		}
		return cli.Harmless(cmp.Or(name, "-"), true) + "\t"
	}
	fmt.Fprintln(tab, "AGENT\t"+node("NODE")+"STATE\tPROCESSOR\tMEMORY\tTOKENS\tCOST\tQUEUE\tAPPROVALS\tRESTARTS\tMODEL")
	for _, a := range agents {
		fmt.Fprintf(tab, "%s\t%s%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", cli.Harmless(a.AgentID, true), node(a.Node), cli.Harmless(a.State, true), seconds(a.CPUSeconds),
			binary(byMemory.value(a)), decimal(byTokens.value(a)), dollars(byCost.value(a)), a.Queued, a.PendingPermissions, a.Restarts, text(cli.MadeBy(a.Kind, a.Model)))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(out.String()) {
		if err := o.App.Printf("%s\n", strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	return nil
}
